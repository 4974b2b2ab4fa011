// explanation_test.cc: what binds a plan, and that the changes listed are the predictor's own.
#include "training/plan/output/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/predict/predictor.h"

namespace hdt::plan {
namespace {

TEST(Explanation, TheRivalIsOfAnotherShapeAndSaysWhy) {
  const Cluster cluster{{{"f", "fast", 2, int64_t{1} << 40}, {"s", "slow", 2, int64_t{1} << 40}}};
  const Model model = example_model(12);
  Profile profile = example_profile();
  std::erase_if(profile.compute, [](const auto& entry) { return entry.first.micro_batch_size > 1; });
  const PredictionInputs inputs{cluster, model, profile, {}};
  // Most of the devices unused: there is a faster one, which leaves none unused.
  Plan alone;
  alone.replicas = {{1, 32, {{12, "f", 1}}}};
  const auto faster = best_rival(inputs, alone);
  ASSERT_TRUE(faster.is_ok() && faster.value().rival);
  EXPECT_LT(faster.value().rival->step_seconds, predict(inputs, alone).value().step_seconds);
  EXPECT_THAT(faster.value().rival->reason, testing::HasSubstr(" s less "));
  const auto slower = best_rival(inputs, faster.value().rival->plan);
  ASSERT_TRUE(slower.is_ok() && slower.value().rival);
  // Pipelines of the same devices are another shape; the same replicas in another order are not.
  EXPECT_GE(slower.value().rival->step_seconds, faster.value().rival->step_seconds);
  EXPECT_NE(shape_text(slower.value().rival->plan, cluster), shape_text(faster.value().rival->plan, cluster));
  const bool equal = slower.value().rival->step_seconds == faster.value().rival->step_seconds;
  EXPECT_THAT(slower.value().rival->reason, testing::HasSubstr(equal ? "as long as" : " s more "));
  EXPECT_NEAR(predict(inputs, slower.value().rival->plan).value().step_seconds,
              slower.value().rival->step_seconds, 1e-12);
}

TEST(Explanation, SlowLinksAreNamed) {
  const Cluster cluster = example_cluster();
  const Model model = example_model();
  Profile profile = example_profile();
  profile.links[{"fast", "fast", false}].bandwidth = {{1, 1e6}};
  Plan plan;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  const Prediction prediction = predict({cluster, model, profile, {}}, plan).value();
  EXPECT_STREQ(binding_part(prediction.workers[0]), "gradient reduction");
  EXPECT_EQ(binding_resource({cluster, model, profile, {}}, plan, prediction, 0), "link fast - fast");
}

// The ring has a hop between equal devices and one that is slow only for allreduces.
TEST(Explanation, RatesOfAllreducesCountForReductions) {
  const Cluster cluster = example_cluster();
  const Model model = example_model();
  Profile profile = example_profile();
  profile.links[{"fast", "slow", false}].allreduce = {{1, 1e6}};
  profile.links[{"fast", "fast", false}].bandwidth = {{1, 1e8}};
  Plan plan;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}, {1, 1, {{4, "d", 1}}}};
  const Prediction prediction = predict({cluster, model, profile, {}}, plan).value();
  EXPECT_EQ(binding_resource({cluster, model, profile, {}}, plan, prediction, 0), "link fast - slow");
}

TEST(Explanation, EqualWorkersAreOneGroup) {
  Cluster cluster;
  for (int node = 0; node < 8; ++node)
    cluster.nodes.push_back(
        {"n" + std::to_string(node), node % 2 == 0 ? "fast" : "slow", 1, int64_t{1} << 40});
  const Model model = example_model();
  const Profile profile = example_profile();
  Plan plan;
  for (int pair = 0; pair < 3; ++pair)
    plan.replicas.push_back(
        {1, 2, {{2, cluster.nodes[2 * pair].name, 1}, {2, cluster.nodes[2 * pair + 1].name, 1}}});
  plan.replicas.push_back({1, 2, {{3, "n6", 1}, {1, "n7", 1}}});
  const std::vector<WorkerGroup> groups = worker_groups({cluster, model, profile, {}}, plan);
  ASSERT_EQ(groups.size(), 4U);
  for (const int at : {0, 1, 2, 3}) {
    EXPECT_EQ(groups[at].replicas, at < 2 ? (std::vector<int>{0, 1, 2}) : std::vector<int>{3});
    EXPECT_EQ(groups[at].stage, at % 2);
    EXPECT_EQ(groups[at].worker, plan.layout().rank_of({groups[at].replicas.front(), at % 2}));
  }
}

}  // namespace
}  // namespace hdt::plan
