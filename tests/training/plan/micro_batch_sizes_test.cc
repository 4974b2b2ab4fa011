// micro_batch_sizes_test.cc: times of micro-batch sizes between and beyond the measured ones. The published
// set's sizes are predicted from each other where HDT_VALIDATION_DIR names it.
#include "training/plan/describe/micro_batch_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/training/plan/examples.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {
namespace {

// `cost(size)` for every layer kind of "fast", without tensor parallelism, at these sizes.
template <typename Cost>
Profile profile_at(const std::vector<int>& sizes, Cost cost) {
  Profile profile = example_profile();
  std::erase_if(profile.compute, [](const auto& entry) {
    return entry.first.device == "fast" && entry.first.tensor_parallel == 1;
  });
  for (const int size : sizes) {
    for (const char* layer : {"embedding", "block", "head"})
      profile.compute[{"fast", layer, 1, size}] = cost(size);
  }
  return profile;
}

Plan plan_of(int size) {
  Plan plan;
  plan.replicas = {{size, 2, {{4, "a", 1}}}};
  return plan;
}

TEST(MicroBatchSizes, LaunchesAndSamplesAreToldApart) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> seconds(.001, .1);
  std::uniform_int_distribution<int> any_size(1, 64);
  for (int round = 0; round < 100; ++round) {
    const double launch = seconds(random);
    const double sample = seconds(random);
    const auto cost = [&](int size) {
      const double time = launch + sample * size;
      LayerCost all{time, 2 * time, 3 * time, .5, 1000 + 10 * size};
      all.recomputed_attention = {time / 4, 100 + 5 * size};
      return all;
    };
    const int first = any_size(random);
    const int second = first + any_size(random);
    const int size = any_size(random);
    if (size == first || size == second) continue;
    SCOPED_TRACE(testing::Message() << first << ", " << second << " to " << size);
    Profile profile = profile_at({first, second}, cost);
    const auto warnings = derive_micro_batch_sizes(profile, example_cluster(), plan_of(size));
    EXPECT_EQ(warnings.size(), size > first && size < second ? 0U : 1U);
    const LayerCost& derived = *profile.find({"fast", "block", 1, size});
    EXPECT_NEAR(derived.forward, cost(size).forward, 1e-9);
    EXPECT_NEAR(derived.input_gradient, cost(size).input_gradient, 1e-9);
    EXPECT_NEAR(derived.weight_gradient, cost(size).weight_gradient, 1e-9);
    EXPECT_EQ(derived.update, .5);
    EXPECT_EQ(derived.activation_bytes, 1000 + 10 * size);
    ASSERT_TRUE(derived.recomputed_attention);
    EXPECT_NEAR(derived.recomputed_attention->more_seconds, cost(size).forward / 4, 1e-9);
    EXPECT_EQ(derived.recomputed_attention->activation_bytes, 100 + 5 * size);
    EXPECT_TRUE(derived.derived);
    EXPECT_EQ(profile.micro_batch_sizes("fast", "block", 1), (std::vector{first, second}));
    // The plan can be played, and files keep what was measured.
    EXPECT_TRUE(predict({example_cluster(), example_model(), profile, {}}, plan_of(size)).is_ok());
    EXPECT_EQ(to_toml(profile), to_toml(profile_at({first, second}, cost)));
  }
}

// Noise may make a larger micro-batch look faster, or a smaller one look better for each sample.
TEST(MicroBatchSizes, NoTimeFallsOrGrowsFasterThanItsSamples) {
  const auto noisy = [](int size) {
    const double time = size == 2 ? .2 : size == 4 ? .15 : .9;
    return LayerCost{time, time, time, .5, 1000};
  };
  Profile falling = profile_at({2, 4}, noisy);
  derive_micro_batch_sizes(falling, example_cluster(), plan_of(8));
  EXPECT_DOUBLE_EQ(falling.find({"fast", "head", 1, 8})->forward, .15);
  derive_micro_batch_sizes(falling, example_cluster(), plan_of(1));
  EXPECT_DOUBLE_EQ(falling.find({"fast", "head", 1, 1})->forward, .2);
  Profile steep = profile_at({4, 8}, noisy);
  derive_micro_batch_sizes(steep, example_cluster(), plan_of(16));
  EXPECT_DOUBLE_EQ(steep.find({"fast", "head", 1, 16})->forward, 1.8);
  derive_micro_batch_sizes(steep, example_cluster(), plan_of(2));
  EXPECT_DOUBLE_EQ(steep.find({"fast", "head", 1, 2})->forward, .075);
}

TEST(MicroBatchSizes, OneSizeIsScaledWithAWarning) {
  const auto cost = [](int size) { return LayerCost{.1 * size, .1, .1, .5, int64_t{100} * size}; };
  Profile profile = profile_at({2}, cost);
  const auto warnings = derive_micro_batch_sizes(profile, example_cluster(), plan_of(8));
  EXPECT_THAT(warnings,
              testing::ElementsAre(testing::AllOf(
                  testing::HasSubstr("device 'fast' with tensor_parallel 1: micro_batch_size 8 was not"),
                  testing::HasSubstr("and 2 alone was"))));
  EXPECT_DOUBLE_EQ(profile.find({"fast", "block", 1, 8})->forward, .8);
  EXPECT_EQ(profile.find({"fast", "block", 1, 8})->activation_bytes, 800);
  // Nothing is known of a degree that was not measured, of a node that is not there, or of no sample.
  Plan plan = plan_of(8);
  plan.replicas[0].stages[0].tensor_parallel = 4;
  plan.replicas.push_back({8, 1, {{4, "nowhere", 1}}});
  plan.replicas.push_back({0, 1, {{4, "c", 1}}});
  Profile same = profile;
  EXPECT_TRUE(derive_micro_batch_sizes(same, example_cluster(), plan).empty());
  EXPECT_EQ(same.compute, profile.compute);
  // A measured size stays as it is.
  EXPECT_TRUE(derive_micro_batch_sizes(same, example_cluster(), plan_of(2)).empty());
  EXPECT_EQ(same.compute, profile.compute);
}

TEST(MicroBatchSizes, EndlessSizesStayNumbers) {
  const auto cost = [](int size) { return LayerCost{.1 * size, .1, .1, .5, int64_t{1} << 50}; };
  Profile profile = profile_at({1}, cost);
  derive_micro_batch_sizes(profile, example_cluster(), plan_of(std::numeric_limits<int>::max()));
  EXPECT_EQ(profile.find({"fast", "block", 1, std::numeric_limits<int>::max()})->activation_bytes,
            1'000'000'000'000'000);
}

// Each published size between two others, from all others: the mean error of a forward and a backward.
TEST(MicroBatchSizes, ThePublishedSizesFollowFromEachOther) {
  const char* folder = ::getenv("HDT_VALIDATION_DIR");
  if (!folder) GTEST_SKIP() << "HDT_VALIDATION_DIR names no folder with a published set";
  const auto sets = import_published_sets(folder);
  ASSERT_TRUE(sets.is_ok()) << sets.status().message();
  for (const PublishedSet& set : sets.value()) {
    double sum = 0;
    int count = 0;
    for (const auto& [key, cost] : set.profile.compute) {
      const auto sizes = set.profile.micro_batch_sizes(key.device, key.layer, key.tensor_parallel);
      if (key.layer != "transformer" || key.micro_batch_size == sizes.front() ||
          key.micro_batch_size == sizes.back())
        continue;
      Profile without = set.profile;
      without.compute.erase(key);
      const Cluster cluster = {{{"n", key.device, key.tensor_parallel, 1}}};
      Plan plan;
      plan.replicas = {{key.micro_batch_size, 1, {{1, "n", key.tensor_parallel}}}};
      EXPECT_TRUE(derive_micro_batch_sizes(without, cluster, plan).empty());
      const LayerCost& derived = *without.find(key);
      sum += std::abs((derived.forward + derived.backward()) / (cost.forward + cost.backward()) - 1);
      ++count;
    }
    EXPECT_GT(count, 10) << set.name;
    EXPECT_LE(sum / count, .05) << set.name;
  }
}

}  // namespace
}  // namespace hdt::plan
