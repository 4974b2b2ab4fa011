// tensor_sums_test.cc: sums over the devices of a tensor-parallel group, which a model says and the
// simulation plays over the link inside a node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"
#include "training/plan/predict/predictor.h"

namespace hdt::plan {
namespace {

constexpr double kRate = 1e9;  // inside a node

class TensorSumsOfLayers : public ::testing::Test {
 protected:
  TensorSumsOfLayers() {
    model_.layers[1].forward_sums = {4 << 20, 2 << 20};
    model_.layers[1].backward_sums = {10 << 20};
    for (Node& node : cluster_.nodes) node.devices = 4;
    for (auto& [key, link] : profile_.links) {
      if (key.inside) link = {1e-4, {{1, kRate}}};
    }
  }
  Prediction predicted(const Plan& plan, const Model& model) const {
    const auto result = predict({cluster_, model, profile_, {}}, plan);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? result.value() : Prediction{};
  }
  // What the sums add to the step.
  double added(const Plan& plan) const {
    return predicted(plan, model_).step_seconds - predicted(plan, example_model()).step_seconds;
  }

  Model model_ = example_model();
  Profile profile_ = example_profile();
  Cluster cluster_ = example_cluster();
};

// A ring of n devices: each hop carries 2 (n - 1) / n of the bytes, and the n hops share the inside of the
// node.
TEST_F(TensorSumsOfLayers, TakeTheirTimeOnTheLinkInsideTheNode) {
  Plan plan;
  plan.replicas = {{2, 3, {{4, "a", 2}}}};
  const double bytes = 4 * 2 * 16 * 1048576.;  // of four layers, two samples
  const double one = 4 * 3 * 1e-4 + 2 * bytes / kRate;
  EXPECT_NEAR(added(plan), 3 * one, 1e-9);
  // They are a part of the computation, in the table and in the pictures.
  const Prediction with = predicted(plan, model_);
  const Prediction without = predicted(plan, example_model());
  EXPECT_NEAR(with.workers[0].compute - without.workers[0].compute, 3 * one, 1e-9);
  EXPECT_EQ(with.spans.size(), without.spans.size());
  EXPECT_NEAR(with.workers[0].sum(), with.step_seconds, 1e-9);

  // Replicas of one node share its inside, and no others do.
  Plan shared = plan;
  shared.replicas.push_back(shared.replicas[0]);
  shared.runtime.overlap_gradients = false;
  Plan apart = shared;
  apart.replicas[1].stages[0].node = "c";
  EXPECT_NEAR(added(shared), 3 * (4 * 3 * 1e-4 + 4 * bytes / kRate), 1e-9);
  EXPECT_NEAR(added(apart), 3 * one, 1e-9);

  plan.replicas[0].stages[0].tensor_parallel = 1;
  EXPECT_EQ(added(plan), 0);
}

TEST_F(TensorSumsOfLayers, AForwardThatRunsAgainHasThemAgain) {
  Plan plan;
  plan.replicas = {{1, 1, {{4, "a", 2}}}};
  Plan recomputed = plan;
  recomputed.replicas[0].stages[0].recomputed_layers = 3;
  EXPECT_NEAR(added(recomputed) - added(plan), 3 * (2 * 1e-4 + 2 * 6 * 1048576. / kRate), 1e-9);
}

TEST_F(TensorSumsOfLayers, EveryScheduleAndShardedStatesPlayThem) {
  for (const ScheduleKind schedule :
       {ScheduleKind::kZeroBubble, ScheduleKind::kEager, ScheduleKind::kGpipe}) {
    for (const bool sharded : {false, true}) {
      Plan plan;
      plan.runtime.schedule = schedule;
      plan.runtime.use_distributed_optimizer = sharded;
      plan.replicas = {{1, 4, {{2, "a", 2}, {2, "c", 2}}}, {1, 4, {{2, "c", 2}, {2, "a", 2}}}};
      // The first stage has those of two layers of each micro-batch, with both replicas on the node.
      EXPECT_GT(added(plan), 4 * 2 * 16 * 1048576. / kRate) << schedule_name(schedule) << sharded;
    }
  }
}

TEST_F(TensorSumsOfLayers, NeedALinkInsideTheNode) {
  std::erase_if(profile_.links, [](const auto& entry) { return entry.first.inside; });
  Plan plan;
  plan.replicas = {{1, 1, {{4, "a", 2}}}};
  const auto refused = predict({cluster_, model_, profile_, {}}, plan);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(
      refused.status().message(),
      testing::StartsWith("replica 1.stage 1.tensor_parallel: 2 given, and layers of model 'small' have "
                          "sums over these devices; the profile has no link inside a node of 'fast'"));
  EXPECT_TRUE(predict({cluster_, example_model(), profile_, {}}, plan).is_ok());
}

}  // namespace
}  // namespace hdt::plan
