// owner_weights_test.cc: the weights against the bound that no weights can pass, and the exchange with
// weighted blocks against the checker.
#include "collectives/owner_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

#include "tests/unit/collectives/owner_rates.h"
#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

constexpr uint64_t kWeightSeed = 30;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kVectors = 20;
#else
constexpr int kVectors = 1'000;
#endif

// The time of an operation of one byte.
double time_of(const std::vector<uint32_t>& weights, const std::vector<OwnerRates>& rates) {
  const auto n = static_cast<double>(rates.size());
  double longest = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double fraction = static_cast<double>(weights[i]) / kWeightUnits;
    longest = std::max(longest, (1 + fraction * (n - 2)) / static_cast<double>(rates[i].link));
    if (rates[i].combine != 0)
      longest = std::max(longest, fraction * (n - 1) / static_cast<double>(rates[i].combine));
    if (rates[i].local != 0) longest = std::max(longest, 1 / static_cast<double>(rates[i].local));
  }
  return longest;
}

// What no node can own more of within the time, of all nodes.
double most_of_all(const std::vector<OwnerRates>& rates, double time) {
  const auto n = static_cast<double>(rates.size());
  double sum = 0;
  for (const OwnerRates& each : rates) {
    const double beyond = time * static_cast<double>(each.link) - 1;
    double most = beyond < 0 ? 0 : 1;
    if (n > 2) most = std::clamp(beyond / (n - 2), 0.0, 1.0);
    if (each.combine != 0) most = std::min(most, time * static_cast<double>(each.combine) / (n - 1));
    sum += most;
  }
  return sum;
}

// No weights can be faster: within the time each node does what it must whatever it owns, and together they
// can own everything.
double bound_of(const std::vector<OwnerRates>& rates) {
  double least = 0;
  for (const OwnerRates& each : rates) {
    least = std::max(least, 1 / static_cast<double>(each.link));
    if (each.local != 0) least = std::max(least, 1 / static_cast<double>(each.local));
  }
  double most = least;
  while (most_of_all(rates, most) < 1) most *= 2;
  for (int step = 0; step < 60; ++step) {
    const double middle = least + (most - least) / 2;
    (most_of_all(rates, middle) < 1 ? least : most) = middle;
  }
  return most;
}

// The best of all weights in steps of 1/16.
double best_of_all(const std::vector<OwnerRates>& rates, std::vector<uint32_t>& weights, size_t node,
                   uint32_t left) {
  if (node + 1 == rates.size()) {
    weights[node] = left;
    return time_of(weights, rates);
  }
  double best = 1e300;
  for (uint32_t taken = 0; taken <= left; taken += kWeightUnits / 16) {
    weights[node] = taken;
    best = std::min(best, best_of_all(rates, weights, node + 1, left - taken));
  }
  return best;
}

// In every other round links alone are limits.
std::vector<OwnerRates> rates_of_round(std::mt19937_64& random, size_t nodes, int round) {
  std::vector<OwnerRates> rates = random_owner_rates(random, nodes);
  if (round % 2 != 0) return rates;
  for (OwnerRates& each : rates) each = {.link = each.link};
  return rates;
}

TEST(OwnerWeights, AddUpAndReachTheBound) {
  std::cout << "seed " << kWeightSeed << "\n";
  std::mt19937_64 random(kWeightSeed);
  for (size_t nodes = 2; nodes <= 64; ++nodes) {
    for (int round = 0; round < kVectors; ++round) {
      const std::vector<OwnerRates> rates = rates_of_round(random, nodes, round);
      const std::vector<uint32_t> weights = owner_weights(rates);
      ASSERT_EQ(std::accumulate(weights.begin(), weights.end(), uint64_t{0}), kWeightUnits);
      // Rounding moves less than one unit for each node.
      const double rounding = 1 + static_cast<double>(nodes * nodes) / kWeightUnits;
      ASSERT_LE(time_of(weights, rates), bound_of(rates) * rounding)
          << nodes << " nodes, round " << round << ", seed " << kWeightSeed;
      ASSERT_NEAR(seconds_of_a_byte(weights, rates) / time_of(weights, rates), 1, 1e-9);
      ASSERT_GE(gain_of(weights, rates), 1);
    }
  }
}

TEST(OwnerWeights, NoOthersAreFaster) {
  std::mt19937_64 random(kWeightSeed);
  for (int round = 0; round < 100; ++round) {
    const size_t nodes = 2 + random() % 3;
    const std::vector<OwnerRates> rates = rates_of_round(random, nodes, round);
    std::vector<uint32_t> other(nodes);
    EXPECT_LE(time_of(owner_weights(rates), rates),
              best_of_all(rates, other, 0, kWeightUnits) * (1 + 16.0 / kWeightUnits))
        << "round " << round << ", seed " << kWeightSeed;
  }
}

// Links alone: the derivation's own formula, without weights.
TEST(OwnerWeights, OfLinksTakeAsLongAsTheSlowestLinkOrAllTogether) {
  std::mt19937_64 random(kWeightSeed);
  for (int round = 0; round < 1000; ++round) {
    const size_t nodes = 3 + random() % 30;
    const std::vector<OwnerRates> rates = rates_of_round(random, nodes, 0);
    double sum = 0;
    for (const OwnerRates& each : rates) sum += static_cast<double>(each.link);
    const double slowest = 1 / static_cast<double>(std::ranges::min(rates, {}, &OwnerRates::link).link);
    const double all = 2 * static_cast<double>(nodes - 1) / sum;
    EXPECT_NEAR(seconds_of_a_byte(owner_weights(rates), rates) / std::max(slowest, all), 1,
                2 * static_cast<double>(nodes * nodes) / kWeightUnits)
        << "round " << round << ", seed " << kWeightSeed;
  }
}

TEST(OwnerWeights, OfKnownLinks) {
  const auto third = kWeightUnits / 3;
  const auto one_at_half = links_alone({1000, 1000, 1000, 500});
  const std::vector<uint32_t> weights = owner_weights(one_at_half);
  EXPECT_EQ(weights[3], 0U);
  for (const size_t node : {0, 1, 2}) EXPECT_NEAR(weights[node], third, 1);
  EXPECT_NEAR(gain_of(weights, one_at_half), 1.5, 1e-3);
  const auto eight = links_alone({8, 8, 8, 4, 8, 8, 8, 8});
  EXPECT_NEAR(gain_of(owner_weights(eight), eight), 1.75, 1e-3);
  const auto equal = links_alone({7, 7, 7, 7});
  EXPECT_EQ(owner_weights(equal), std::vector<uint32_t>(4, kWeightUnits / 4));
  EXPECT_EQ(gain_of(owner_weights(equal), equal), 1);
  EXPECT_EQ(owner_weights(links_alone({9, 1})), std::vector<uint32_t>(2, kWeightUnits / 2));
  EXPECT_EQ(owner_weights(links_alone({3})), std::vector<uint32_t>{kWeightUnits});
  EXPECT_TRUE(owner_weights({}).empty());
}

// With the fraction w of the slow engine and T in ms: w = T / 30, and T = 1 + 2 (1 - w) / 3 by the links of
// the others. Equal parts take 0.75 / 100 s.
TEST(OwnerWeights, OfASlowEngineAreWhatItCanCombine) {
  std::vector<OwnerRates> rates(4, {.link = 1000, .combine = 10'000});
  rates[3].combine = 100;
  const double time = 5.0 / 3 / (1 + 1.0 / 45);
  const std::vector<uint32_t> weights = owner_weights(rates);
  EXPECT_NEAR(weights[3], time / 30 * kWeightUnits, 4);
  EXPECT_NEAR(weights[0], weights[2], 1);
  EXPECT_NEAR(gain_of(weights, rates), 7.5 / time, 1e-3);
  EXPECT_EQ(pace_of(rates[3]), 200U);
  EXPECT_EQ(pace_of(rates[0]), 1000U);
  EXPECT_EQ(pace_of({.link = 7}), 7U);
  // Its engine and its link are one limit: the slow link leaves it nothing, whatever the engine does.
  rates[3].link = 500;
  EXPECT_EQ(owner_weights(rates)[3], 0U);
  // Slow engines that are no limit change nothing.
  std::vector<OwnerRates> busy(4, {.link = 1000, .combine = 500});
  EXPECT_EQ(owner_weights(busy), std::vector<uint32_t>(4, kWeightUnits / 4));
}

// Between two nodes each link carries everything both ways, whoever owns it.
TEST(OwnerWeights, OfTwoNodesFollowTheirEngines) {
  std::vector<OwnerRates> rates = {{.link = 1000, .combine = 100}, {.link = 1000, .combine = 300}};
  EXPECT_EQ(owner_weights(rates), (std::vector<uint32_t>{kWeightUnits / 4, kWeightUnits / 4 * 3}));
  EXPECT_NEAR(gain_of(owner_weights(rates), rates), 2, 1e-9);
  // Only as far as the links do not take longer: 1 / 250 s, in which the slow engine combines 2 / 5.
  rates[1].link = 250;
  EXPECT_NEAR(owner_weights(rates)[0], kWeightUnits * 2 / 5, 1);
  rates[1].combine = 0;
  EXPECT_NEAR(owner_weights(rates)[0], kWeightUnits * 2 / 5, 1);
  rates[0].combine = 0;
  EXPECT_EQ(owner_weights(rates), std::vector<uint32_t>(2, kWeightUnits / 2));
}

// All of the data goes through the ranks of a node, whatever it owns. So parts are more even within the time
// that this takes.
TEST(OwnerWeights, AreNoMoreUnequalThanTheRanksOfANodeAreSlow) {
  std::vector<OwnerRates> rates(4, {.link = 1000, .combine = 10'000});
  rates[3].combine = 100;
  rates[1].local = 500;  // 2 ms, in which the slow engine combines 1 / 15
  const std::vector<uint32_t> weights = owner_weights(rates);
  EXPECT_NEAR(weights[3], kWeightUnits / 15, 1);
  EXPECT_NEAR(weights[0], kWeightUnits * 14 / 45, 2);
  EXPECT_NEAR(gain_of(weights, rates), 7.5 / 2, 1e-9);
  rates[1].local = 130;
  EXPECT_EQ(owner_weights(rates), std::vector<uint32_t>(4, kWeightUnits / 4));
  EXPECT_EQ(gain_of(owner_weights(rates), rates), 1);
}

TEST(OwnerWeights, AtTheLimitsNothingOverflows) {
  constexpr uint64_t kMost = kHighestWeightedRate;
  std::vector<OwnerRates> rates(kMostWeightedNodes, {kMost, kMost, kMost});
  EXPECT_EQ(owner_weights(rates),
            std::vector<uint32_t>(kMostWeightedNodes, kWeightUnits / kMostWeightedNodes));
  std::fill(rates.begin() + 2, rates.end(), OwnerRates{});
  std::vector<uint32_t> weights = owner_weights(rates);
  EXPECT_EQ(weights[0] + weights[1], kWeightUnits);
  std::fill(rates.begin() + 2, rates.end(), OwnerRates{kMost, 1, 0});
  weights = owner_weights(rates);
  EXPECT_EQ(weights[0] + weights[1], kWeightUnits);
  EXPECT_NEAR(weights[0], kWeightUnits / 2, 1);
}

TEST(OwnerWeights, BlocksAreWithinOneElement) {
  const std::vector<uint32_t> weights = owner_weights(links_alone({10, 5, 9, 8}));
  for (const uint64_t elements : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, uint64_t{1} << 56}) {
    const std::vector<uint64_t> offsets = weighted_offsets(weights, elements);
    ASSERT_EQ(offsets.size(), 5U);
    EXPECT_EQ(offsets.back(), elements);
    for (size_t node = 0; node < 4; ++node) {
      EXPECT_NEAR(static_cast<double>(offsets[node + 1] - offsets[node]),
                  static_cast<double>(elements) * weights[node] / kWeightUnits, 1);
    }
  }
}

// Random blocks, also empty ones, and one node that owns all.
TEST(WeightedPairwise, IsProven) {
  std::mt19937_64 random(kWeightSeed);
  for (int nodes = 2; nodes <= 64; ++nodes) {
    const int vectors = vectors_of(nodes, kVectors);
    std::cout << (nodes == 2 ? "vectors by nodes: " : ", ") << nodes << ": " << vectors;
    for (int round = 0; round < vectors; ++round) {
      Problem problem = make_problem(Collective::kAllReduce, nodes, Shape::kNothing);
      for (int node = 1; node <= nodes; ++node) {
        const uint64_t length = round == 0 ? 2 * (node == nodes / 2 + 1) : random() % 3;
        problem.block_offsets[node] = problem.block_offsets[node - 1] + length;
      }
      ASSERT_EQ(check(Algorithm::kPairwise, problem, scratch_needed(Algorithm::kPairwise, problem)), "")
          << nodes << " nodes, round " << round << ", seed " << kWeightSeed;
    }
  }
  std::cout << "\n";
}

// And it combines n - 1 times what it owns.
TEST(WeightedPairwise, IsProvenWithTheWeightsOfUnequalNodes) {
  std::mt19937_64 random(kWeightSeed);
  for (int nodes = 2; nodes <= 16; ++nodes) {
    for (int round = 0; round < std::max(1, kVectors / 40); ++round) {
      const auto rates = random_owner_rates(random, static_cast<size_t>(nodes));
      Problem problem = make_problem(Collective::kAllReduce, nodes, Shape::kNothing);
      problem.block_offsets = weighted_offsets(owner_weights(rates), 3 * static_cast<uint64_t>(nodes));
      ASSERT_EQ(check(Algorithm::kPairwise, problem, scratch_needed(Algorithm::kPairwise, problem)), "")
          << nodes << " nodes, round " << round << ", seed " << kWeightSeed;
      const auto lists = all_steps(Algorithm::kPairwise, problem);
      for (size_t node = 0; node < lists.size(); ++node) {
        const uint64_t own = problem.block_offsets[node + 1] - problem.block_offsets[node];
        EXPECT_EQ(combined_elements(lists[node]), own * static_cast<uint64_t>(nodes - 1));
      }
    }
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
