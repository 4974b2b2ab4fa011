// explanation_test.cc: what binds a plan, and that the changes listed are the predictor's own.
#include "training/plan/output/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/predict/predictor.h"

namespace hdt::plan {
namespace {

TEST(Explanation, TheSlowStageIsWhatHelps) {
  const Cluster cluster = example_cluster();
  const Model model = example_model();
  const Profile profile = example_profile();
  Plan plan;
  plan.replicas = {{1, 8, {{2, "a", 1}, {2, "b", 1}}}};  // the slow stage has the head, too
  const auto found = changes({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(found.value().front().what, "slow a tenth faster");
  const double step = predict({cluster, model, profile, {}}, plan).value().step_seconds;
  for (const Change& change : found.value()) EXPECT_LE(change.step_seconds, step + 1e-12) << change.what;
  EXPECT_LT(found.value().front().step_seconds, .95 * step);
}

TEST(Explanation, TheRivalIsOfAnotherShapeAndSaysWhy) {
  const Cluster cluster{{{"f", "fast", 1, int64_t{1} << 40}, {"s", "slow", 1, int64_t{1} << 40}}};
  const Model model = example_model(12);
  Profile profile = example_profile();
  std::erase_if(profile.compute, [](const auto& entry) { return entry.first.micro_batch_size > 1; });
  const PredictionInputs inputs{cluster, model, profile, {}};
  // Half of the devices unused: there is a faster one, which leaves none unused.
  Plan alone;
  alone.replicas = {{1, 32, {{12, "f", 1}}}};
  const auto faster = best_rival(inputs, alone);
  ASSERT_TRUE(faster.is_ok() && faster.value().rival);
  EXPECT_LT(faster.value().rival->step_seconds, predict(inputs, alone).value().step_seconds);
  EXPECT_THAT(faster.value().rival->reason, testing::HasSubstr(" s less "));
  const auto slower = best_rival(inputs, faster.value().rival->plan);
  ASSERT_TRUE(slower.is_ok() && slower.value().rival);
  EXPECT_GT(slower.value().rival->step_seconds, faster.value().rival->step_seconds);
  EXPECT_NE(shape_text(slower.value().rival->plan, cluster), shape_text(faster.value().rival->plan, cluster));
  EXPECT_THAT(slower.value().rival->reason, testing::HasSubstr(" s more "));
  EXPECT_NEAR(predict(inputs, slower.value().rival->plan).value().step_seconds,
              slower.value().rival->step_seconds, 1e-12);
}

TEST(Explanation, SlowLinksAreWhatHelps) {
  const Cluster cluster = example_cluster();
  const Model model = example_model();
  Profile profile = example_profile();
  profile.links[{"fast", "fast", false}].bandwidth = {{1, 1e6}};
  Plan plan;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  const auto found = changes({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(found.value().front().what, "link fast - fast twice as fast");
  const Prediction prediction = predict({cluster, model, profile, {}}, plan).value();
  EXPECT_STREQ(binding_part(prediction.workers[0]), "gradient reduction");
  EXPECT_EQ(binding_resource({cluster, model, profile, {}}, plan, prediction, 0), "link fast - fast");
}

}  // namespace
}  // namespace hdt::plan
