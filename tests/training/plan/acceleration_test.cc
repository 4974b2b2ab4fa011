// acceleration_test.cc: what devices reach alone, by hand.
#include "training/plan/predict/acceleration.h"

#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"

namespace hdt::plan {
namespace {

constexpr int64_t kOneMib = 1 << 20;
// The example on "fast", for one sample (predictor_test.cc).
constexpr double kSample = .061 + .122;
constexpr double kOneUpdate = .01;

class Acceleration : public ::testing::Test {
 protected:
  std::vector<DevicesAlone> alone(const Plan& plan) {
    auto result = devices_alone({cluster_, model_, profile_, {}}, plan);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? result.take() : std::vector<DevicesAlone>();
  }

  Cluster cluster_ = example_cluster();
  Model model_ = example_model();
  Profile profile_ = example_profile();
  Plan plan_ = {{{4, 2, {{4, "a", 1}}}}, {}, {}};  // 8 samples; most nodes are not used
};

TEST_F(Acceleration, EveryDeviceOfTheClusterTrainsTheWholeModelAlone) {
  const std::vector<DevicesAlone> nodes = alone(plan_);
  ASSERT_EQ(nodes.size(), 4U);
  const double fast = 8 / (8 * kSample + kOneUpdate);
  const double slow = 8 / (8 * 2 * kSample + kOneUpdate);
  for (size_t node = 0; node < nodes.size(); ++node) {
    EXPECT_EQ(nodes[node].node, cluster_.nodes[node].name);
    EXPECT_EQ(nodes[node].workers, 2);
    EXPECT_EQ(nodes[node].recomputed_layers, 0);
    EXPECT_NEAR(nodes[node].samples_per_second, node % 2 == 0 ? fast : slow, 1e-9);
  }
  EXPECT_NEAR(sum_of_rates(nodes), 4 * fast + 4 * slow, 1e-9);
}

TEST_F(Acceleration, ALargeMicroBatchCountsWhereItIsBetter) {
  for (auto& [key, cost] : profile_.compute) {
    if (key.device == "fast" && key.micro_batch_size == 4) cost.forward /= 2;
  }
  EXPECT_EQ(alone(plan_)[0].micro_batch_size, 4);
  for (auto& [key, cost] : profile_.compute) {
    if (key.device == "fast" && key.micro_batch_size == 2) cost.forward /= 4;
  }
  EXPECT_EQ(alone(plan_)[0].micro_batch_size, 2);
}

// State 128 MiB; a sample's activations 16 + 4 x 64 + 128 MiB. A recomputed layer keeps 1 MiB, and one layer
// at a time is there whole.
TEST_F(Acceleration, ADeviceThatLacksMemoryRecomputesOrCountsNothing) {
  cluster_.nodes[0].memory_bytes = (128 + 400) * kOneMib;
  cluster_.nodes[1].memory_bytes = (128 + 400) * kOneMib - 1;
  cluster_.nodes[2].memory_bytes = 140 * kOneMib;
  const std::vector<DevicesAlone> nodes = alone(plan_);
  EXPECT_EQ(nodes[0].recomputed_layers, 0);
  EXPECT_EQ(nodes[0].micro_batch_size, 1);
  EXPECT_NEAR(nodes[0].samples_per_second, 8 / (8 * kSample + kOneUpdate), 1e-9);
  // Recomputing one layer needs its 64 MiB again, so two are recomputed: 20 ms each on "slow".
  EXPECT_EQ(nodes[1].recomputed_layers, 2);
  EXPECT_NEAR(nodes[1].samples_per_second, 8 / (8 * (2 * kSample + 2 * .02) + kOneUpdate), 1e-9);
  EXPECT_EQ(nodes[2].samples_per_second, 0);
}

// Each layer lacks 32 MiB then, and one has them: two layers are as much as two whole ones, for less time.
TEST_F(Acceleration, AttentionAloneIsRecomputedWhereThatIsFaster) {
  cluster_.nodes[1].memory_bytes = (128 + 400) * kOneMib - 1;
  for (auto& [key, cost] : profile_.compute)
    cost.recomputed_attention = {.005 * key.micro_batch_size, cost.activation_bytes / 2};
  const DevicesAlone attention = alone(plan_)[1];
  EXPECT_EQ(attention.recomputed_layers, 2);
  EXPECT_TRUE(attention.attention_only);
  EXPECT_NEAR(attention.samples_per_second, 8 / (8 * (2 * kSample + 2 * .005) + kOneUpdate), 1e-9);
  for (auto& [key, cost] : profile_.compute) cost.recomputed_attention->more_seconds *= 5;
  const DevicesAlone whole = alone(plan_)[1];
  EXPECT_FALSE(whole.attention_only);
  EXPECT_NEAR(whole.samples_per_second, 8 / (8 * (2 * kSample + 2 * .02) + kOneUpdate), 1e-9);
}

TEST_F(Acceleration, AGroupOfDevicesCountsAsOneWorker) {
  plan_.replicas = {{4, 2, {{4, "a", 2}}}};
  const std::vector<DevicesAlone> nodes = alone(plan_);
  EXPECT_EQ(nodes[0].workers, 1);
  EXPECT_NEAR(nodes[0].samples_per_second, 8 / (4 * kSample + kOneUpdate), 1e-9);
  EXPECT_EQ(nodes[2].workers, 2);
}

}  // namespace
}  // namespace hdt::plan
