// plan_check_test.cc: plans that contradict themselves, the cluster, the model or the profile are refused by
// name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"

namespace hdt::plan {
namespace {

std::string refusal(const Plan& plan, const Profile& profile = example_profile()) {
  const Status status = check_plan(plan, example_cluster(), example_model(), profile);
  EXPECT_FALSE(status.is_ok());
  return status.message();
}

TEST(PlanCheck, AcceptsTheExample) {
  EXPECT_TRUE(check_plan(example_plan(), example_cluster(), example_model(), example_profile()).is_ok());
  EXPECT_EQ(example_plan().global_batch_size(), 6);
}

TEST(PlanCheck, NamesWhatContradicts) {
  Plan plan;
  EXPECT_EQ(refusal(plan), "replica: none given, expected at least one");
  plan = example_plan();
  plan.replicas[1].stages.clear();
  EXPECT_EQ(refusal(plan), "replica 2.stage: none given, expected at least one");
  plan = example_plan();
  plan.replicas[0].stages[1].node = "z";
  EXPECT_EQ(refusal(plan), "replica 1.stage 2.node: the cluster has no node 'z'");
  plan = example_plan();
  plan.replicas[1].stages[0].layers = 3;
  EXPECT_EQ(refusal(plan), "replica 2.stage.layers: sum to 5, expected the 4 of model 'small'");
  plan = example_plan();
  plan.replicas[0].stages[0].tensor_parallel = 4;
  EXPECT_THAT(refusal(plan), testing::HasSubstr("no parameter_bytes of 'embedding' for degree 4"));
  plan = example_plan();
  plan.replicas[0].micro_batch_size = 3;
  EXPECT_THAT(refusal(plan), testing::HasSubstr("no 'embedding' on device 'fast' with tensor_parallel 1 and "
                                                "micro_batch_size 3"));
}

TEST(PlanCheck, ADeviceIsTakenOnce) {
  Plan plan = example_plan();
  plan.replicas[0].stages[0].tensor_parallel = 2;
  plan.replicas[1].stages[0].node = "a";
  EXPECT_EQ(refusal(plan),
            "replica 2.stage 1.node: node 'a' has 2 devices; the plan needs 3 or more of them");
}

TEST(PlanCheck, APipelineDoesNotComeBackToDevicesThatItHas) {
  Cluster cluster = example_cluster();
  for (Node& node : cluster.nodes) node.devices = 1;
  Plan plan;
  plan.replicas = {{1, 4, {{1, "a", 1}, {2, "b", 1}, {1, "a", 1}}}};
  const std::string expected =
      "replica 1.stage 3.node: a cycle: the pipeline has left node 'a' after stage 1 and comes back, but its "
      "1 devices "
      "are taken";
  EXPECT_EQ(check_plan(plan, cluster, example_model(), example_profile()).message(), expected);
  EXPECT_EQ(check_nodes(plan, cluster).message(), expected);
  cluster.nodes[0].devices = 2;
  EXPECT_TRUE(check_plan(plan, cluster, example_model(), example_profile()).is_ok());
}

TEST(PlanCheck, LayersAreRecomputedThatThereAreAndByWholeBackwards) {
  Plan plan = example_plan();
  plan.replicas[0].stages[0].recomputed_layers = 3;
  EXPECT_TRUE(check_plan(plan, example_cluster(), example_model(), example_profile()).is_ok());
  plan.replicas[0].stages[0].recomputed_layers = 4;
  EXPECT_EQ(refusal(plan),
            "replica 1.stage 1.recompute_layers: 4 given, expected 0 to 3, the stage's layers");
  plan.replicas[0].stages[0].recomputed_layers = 1;
  plan.runtime.schedule = ScheduleKind::kZeroBubble;
  EXPECT_THAT(refusal(plan), testing::HasSubstr("replica 1.stage 1.recompute_layers: 1 given; with schedule "
                                                "'zero-bubble'"));
  EXPECT_EQ(check_replicas(plan).message(), refusal(plan));
}

TEST(PlanCheck, RecomputedAttentionMustBeInTheProfileAndOfSomeLayer) {
  Plan plan = example_plan();
  plan.replicas[1].stages[0].attention_only = true;
  EXPECT_THAT(refusal(plan), testing::HasSubstr("replica 2.stage 1.recompute_granularity: 'selective' given, "
                                                "but no layer is recomputed"));
  EXPECT_EQ(check_replicas(plan).message(), refusal(plan));
  plan.replicas[1].stages[0].recomputed_layers = 1;
  EXPECT_TRUE(check_replicas(plan).is_ok());
  EXPECT_THAT(refusal(plan), testing::HasSubstr("replica 2.stage 1.recompute_granularity: 'selective' given, "
                                                "but the profile does not know it of device 'fast'"));
  // The embedding and the head have no attention.
  Profile profile = example_profile();
  profile.compute.at({"fast", "block", 1, 1}).recomputed_attention = {.001, 1 << 20};
  EXPECT_TRUE(check_plan(plan, example_cluster(), example_model(), profile).is_ok());
}

TEST(PlanCheck, LinksThatAreUsedMustBeKnown) {
  Profile profile = example_profile();
  profile.links.erase({"fast", "slow", false});
  EXPECT_EQ(refusal(example_plan(), profile), "link: the profile has none between 'fast' and 'slow'");
  profile = example_profile();
  profile.links.erase({"fast", "fast", true});
  Plan plan = example_plan();
  plan.replicas[1].stages[0].node = "a";
  EXPECT_EQ(refusal(plan, profile), "link: the profile has none inside a node of 'fast'");
}

TEST(ProfileCheck, HolesAreRefused) {
  Profile profile = example_profile();
  EXPECT_TRUE(check_profile(profile, example_model()).is_ok());
  profile.compute.erase({"slow", "head", 2, 4});
  EXPECT_EQ(
      check_profile(profile, example_model()).message(),
      "compute: layer 'head' is missing for device 'slow' with tensor_parallel 2 and micro_batch_size 4");
}

TEST(MeasuredSlowdown, IsTheMedianOfPairsAndAtLeastOne) {
  // The machine was disturbed during the third pair, and once beside communication.
  EXPECT_DOUBLE_EQ(measured_slowdown({1, 1, 5, 1, 1}, {1.2, 1.3, 6, 9, 1.1}), 1.2);
  EXPECT_EQ(measured_slowdown({1, 1, 1}, {.9, .8, 1.1}), 1);
  EXPECT_EQ(measured_slowdown({2}, {3}), 1.5);
}

TEST(Link, RateIsLinearInTheLogarithmOfTheSize) {
  const Link link{0, {{1e3, 1e6}, {1e5, 3e6}}};
  EXPECT_DOUBLE_EQ(link.rate(1), 1e6);
  EXPECT_DOUBLE_EQ(link.rate(1e3), 1e6);
  EXPECT_NEAR(link.rate(1e4), 2e6, 1e-3);
  EXPECT_DOUBLE_EQ(link.rate(1e9), 3e6);
}

TEST(Model, UnitsAreARow) {
  const Model model = example_model();
  EXPECT_EQ(model.num_units(), 6);
  EXPECT_EQ(model.num_layers(), 4);
  EXPECT_EQ(model.unit(0).name, "embedding");
  EXPECT_EQ(model.unit(4).name, "block");
  EXPECT_EQ(model.unit(5).name, "head");
}

}  // namespace
}  // namespace hdt::plan
