// class_search_test.cc: the parts of the search for large clusters against brute force, and the plans it
// makes.
#include "training/plan/search/class_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "tests/training/plan/examples.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

Cluster cluster_of(int fast, int slow, int64_t memory = int64_t{1} << 40) {
  Cluster cluster;
  for (int i = 0; i < fast + slow; ++i)
    cluster.nodes.push_back({"n" + std::to_string(i), i < fast ? "fast" : "slow", 4, memory});
  return cluster;
}

// The least longest stage of all splits that fit memory; infinite if none does.
double least_longest(const PredictionInputs& inputs, const std::vector<int>& kinds, int64_t memory,
                     const RecomputeChoice& recompute) {
  const int stages = static_cast<int>(kinds.size());
  double best = std::numeric_limits<double>::infinity();
  std::vector<int> layers;
  const std::function<void(int)> extend = [&](int left) {
    if (static_cast<int>(layers.size()) == stages) {
      if (left > 0) return;
      Plan plan;
      plan.replicas = {{1, stages, {}}};
      for (int s = 0; s < stages; ++s)
        plan.replicas[0].stages.push_back({layers[s], (kinds[s] == 0 ? "n0" : "n1"), 1});
      double longest = 0;
      for (int s = 0; s < stages; ++s) {
        double shortest = std::numeric_limits<double>::infinity();
        for (const bool attention_only : {false, true}) {
          Stage& stage = plan.replicas[0].stages[s];
          const int most = (attention_only ? recompute.attention : recompute.layers) ? layers[s] : 0;
          for (stage.recomputed_layers = 0; stage.recomputed_layers <= most; ++stage.recomputed_layers) {
            stage.attention_only = attention_only && stage.recomputed_layers > 0;
            const StageCost cost = stage_cost(inputs, plan, plan.layout(), {0, s});
            if (stage_memory_bytes(inputs, cost, 1, stages - s) > static_cast<double>(memory)) continue;
            shortest = std::min(shortest, cost.forward + cost.backward);
            break;
          }
          stage.recomputed_layers = 0;
        }
        longest = std::max(longest, shortest);
      }
      best = std::min(best, longest);
      return;
    }
    for (int here = 1; here <= left; ++here) {
      layers.push_back(here);
      extend(left - here);
      layers.pop_back();
    }
  };
  extend(inputs.model.num_layers());
  return best;
}

TEST(ClassMaker, SplitsHaveTheLeastLongestStageThatFits) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  int fitting = 0;
  int recomputing = 0;
  int attention_only = 0;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const Model model = example_model(any(3, 8));
    Profile profile = example_profile();
    for (auto& [key, cost] : profile.compute) {
      cost.forward *= any(1, 5);
      cost.recomputed_attention = {.005 * any(1, 5), cost.activation_bytes / any(1, 5)};
    }
    const int64_t memory = int64_t{any(100, 1200)} << 20;
    const Cluster cluster = cluster_of(1, 1, memory);
    const PredictionInputs inputs{cluster, model, profile, {}};
    const RecomputeChoice recompute{.layers = any(0, 1) == 1, .attention = any(0, 1) == 1};
    const ClassMaker maker(inputs, ScheduleKind::kOneForwardOneBackward, recompute);
    std::vector<int> kinds(any(1, 2), any(0, 1));
    if (any(0, 1)) kinds.push_back(1 - kinds[0]);
    const auto made = maker.make({1, 1}, kinds);
    const double expected = least_longest(inputs, kinds, memory, recompute);
    ASSERT_EQ(made.has_value(), expected < std::numeric_limits<double>::infinity());
    if (!made) {
      EXPECT_GT(maker.least_excess({1, 1}, kinds), 0);
      continue;
    }
    ++fitting;
    EXPECT_EQ(std::accumulate(made->layers.begin(), made->layers.end(), 0), model.num_layers());
    Plan plan;
    plan.replicas = {{1, 1, {}}};
    for (size_t s = 0; s < kinds.size(); ++s)
      plan.replicas[0].stages.push_back({made->layers[s], kinds[s] == 0 ? "n0" : "n1", 1});
    double longest = 0;
    for (int s = 0, first = 0; s < static_cast<int>(kinds.size()); first += made->layers[s++]) {
      const auto fitted = maker.fitted(*made, s, first, made->layers[s], 100);
      ASSERT_TRUE(fitted);
      plan.replicas[0].stages[s].recomputed_layers = fitted->recomputed_layers;
      plan.replicas[0].stages[s].attention_only = fitted->attention_only;
      recomputing += fitted->recomputed_layers > 0;
      attention_only += fitted->attention_only;
      const StageCost cost = stage_cost(inputs, plan, plan.layout(), {0, s});
      EXPECT_LE(stage_memory_bytes(inputs, cost, 1, static_cast<int>(kinds.size()) - s),
                static_cast<double>(memory));
      longest = std::max(longest, cost.forward + cost.backward);
    }
    EXPECT_NEAR(longest, expected, 1e-6 * expected);
  }
  EXPECT_GT(fitting, 50);
  EXPECT_GT(recomputing, attention_only);
  EXPECT_GT(attention_only, 0);
}

TEST(SolvePacking, IsAsGoodAsTheBestVertex) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    std::vector<double> value;
    std::vector<std::vector<int>> use;
    for (int c = any(1, 8); c > 0; --c) {
      value.push_back(any(1, 20));
      use.push_back({any(0, 4), any(1, 4)});
    }
    const std::vector<int> capacity = {any(1, 30), any(1, 30)};
    // Vertices of a problem with two rows: one column, or two with both rows full.
    double best = 0;
    for (size_t a = 0; a < value.size(); ++a) {
      double most = static_cast<double>(capacity[1]) / use[a][1];
      if (use[a][0] > 0) most = std::min(most, static_cast<double>(capacity[0]) / use[a][0]);
      best = std::max(best, most * value[a]);
      for (size_t b = 0; b < a; ++b) {
        const double determinant = use[a][0] * use[b][1] - use[b][0] * use[a][1];
        if (determinant == 0) continue;
        const double x = (capacity[0] * use[b][1] - use[b][0] * capacity[1]) / determinant;
        const double y = (use[a][0] * capacity[1] - capacity[0] * use[a][1]) / determinant;
        if (x >= 0 && y >= 0) best = std::max(best, x * value[a] + y * value[b]);
      }
    }
    const std::vector<double> x = solve_packing(value, use, capacity);
    double reached = 0;
    for (size_t c = 0; c < value.size(); ++c) reached += x[c] * value[c];
    EXPECT_NEAR(reached, best, 1e-6 * best);
    for (size_t k = 0; k < 2; ++k) {
      double used = 0;
      for (size_t c = 0; c < value.size(); ++c) used += x[c] * use[c][k];
      EXPECT_LE(used, capacity[k] + 1e-6);
    }
  }
}

// Not optimal, but never a plan that is not what it says, and near what all shapes give where these can be
// looked at.
TEST(ClassSearch, IsNearTheBestOnSmallClusters) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  double excess = 0;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const Cluster cluster{
        {{"a", "fast", any(1, 3), int64_t{1} << 40}, {"b", "slow", any(1, 3), int64_t{1} << 40}}};
    const Model model = example_model(any(3, 6));
    Profile profile = example_profile();
    std::erase_if(profile.compute, [](const auto& entry) { return entry.first.micro_batch_size == 4; });
    for (auto& [key, link] : profile.links) link.bandwidth = {{1, any(1, 10) * 1e8}};
    const PredictionInputs inputs{cluster, model, profile, {}};
    SearchOptions options;
    options.global_batch_size = any(8, 16);
    const auto best = search(inputs, options);
    ASSERT_TRUE(best.is_ok());
    SearchState state;
    ClassSearch(inputs, options, state).run();
    ASSERT_TRUE(state.best);
    const auto prediction = predict(inputs, *state.best);
    ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
    EXPECT_EQ(prediction.value().step_seconds, state.best_seconds);
    EXPECT_EQ(state.best->global_batch_size(), options.global_batch_size);
    excess += state.best_seconds / best.value().step_seconds - 1;
  }
  std::cout << "longer than the best by " << 100 * excess / kRounds << " % on average\n";
  EXPECT_LT(excess / kRounds, .15);
}

TEST(ClassSearch, TheLargeExampleReachesItsBound) {
  const std::string folder = HDT_PLAN_EXAMPLES;
  const auto cluster = read_cluster(folder + "/768-cluster.toml");
  const auto model = read_model(folder + "/140b-model.toml");
  const auto profile = read_profile(folder + "/140b-profile.toml");
  ASSERT_TRUE(cluster.is_ok()) << cluster.status().message();
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  ASSERT_TRUE(profile.is_ok()) << profile.status().message();
  const PredictionInputs inputs{cluster.value(), model.value(), profile.value(), {}};
  SearchOptions options;
  options.global_batch_size = 8192;
  options.engine = Engine::kAny;
  const auto found = search(inputs, options);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_EQ(found.value().proof, SearchProof::kNone);
  // On so many devices most candidates are left to their estimates.
  EXPECT_GT(found.value().not_played, found.value().predictions);
  EXPECT_GE(ideal_seconds(inputs, 8192) / found.value().step_seconds, .9749);
  const auto prediction = predict(inputs, found.value().plan);
  ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
  EXPECT_EQ(prediction.value().step_seconds, found.value().step_seconds);
  EXPECT_EQ(memory_excess(cluster.value(), found.value().plan, prediction.value()).bytes, 0);
  EXPECT_EQ(found.value().plan.global_batch_size(), 8192);
}

TEST(ClassSearch, WhatDoesNotFitIsSaidWithTheDeviceAndTheAmount) {
  const Cluster cluster = cluster_of(4, 4, 1 << 20);
  const Model model = example_model();
  const Profile profile = example_profile();
  SearchOptions options;
  options.global_batch_size = 4;
  EXPECT_THAT(
      search({cluster, model, profile, {}}, options).status().message(),
      testing::ContainsRegex("fits memory in no split: at best 0.[0-9]+ GiB are missing on each device of "
                             "kind '(fast|slow)'"));
}

TEST(ClassSearch, ABatchThatCannotBeCutIsRefused) {
  const Cluster cluster = cluster_of(4, 4);
  const Model model = example_model();
  Profile profile = example_profile();
  std::erase_if(profile.compute, [](const auto& entry) { return entry.first.micro_batch_size != 2; });
  SearchOptions options;
  options.global_batch_size = 3;
  EXPECT_THAT(search({cluster, model, profile, {}}, options).status().message(),
              testing::HasSubstr("a global batch of 3 cannot be cut into the profile's micro-batches"));
  profile.compute.clear();
  EXPECT_THAT(search({cluster, model, profile, {}}, options).status().message(),
              testing::HasSubstr("no device kind of the cluster"));
}

}  // namespace
}  // namespace hdt::plan
