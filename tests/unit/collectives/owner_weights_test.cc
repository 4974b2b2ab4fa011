// owner_weights_test.cc: the weights against the bound that no weights can pass, and the exchange with
// weighted blocks against the checker.
#include "collectives/owner_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

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
double time_of(const std::vector<uint32_t>& weights, const std::vector<uint64_t>& rates) {
  double longest = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double fraction = static_cast<double>(weights[i]) / kWeightUnits;
    longest = std::max(
        longest, (1 + fraction * static_cast<double>(rates.size() - 2)) / static_cast<double>(rates[i]));
  }
  return longest;
}

// No weights can be faster: each node carries at least the whole once, all nodes together 2 (n - 1) of it.
double bound_of(const std::vector<uint64_t>& rates) {
  const auto n = static_cast<double>(rates.size());
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  return std::max(1 / static_cast<double>(std::ranges::min(rates)), 2 * (n - 1) / sum);
}

// The best of all weights in steps of 1/16.
double best_of_all(const std::vector<uint64_t>& rates, std::vector<uint32_t>& weights, size_t node,
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

std::vector<uint64_t> random_rates(std::mt19937_64& random, size_t nodes) {
  std::vector<uint64_t> rates(nodes);
  const uint64_t widest = uint64_t{1} << (1 + random() % 40);
  for (uint64_t& rate : rates) rate = 1 + random() % widest;
  return rates;
}

TEST(OwnerWeights, AddUpAndReachTheBound) {
  std::cout << "seed " << kWeightSeed << "\n";
  std::mt19937_64 random(kWeightSeed);
  for (size_t nodes = 3; nodes <= 64; ++nodes) {
    for (int round = 0; round < kVectors; ++round) {
      const std::vector<uint64_t> rates = random_rates(random, nodes);
      const std::vector<uint32_t> weights = owner_weights(rates);
      ASSERT_EQ(std::accumulate(weights.begin(), weights.end(), uint64_t{0}), kWeightUnits);
      // Rounding moves less than one unit for each node.
      const double rounding = 1 + static_cast<double>(nodes * nodes) / kWeightUnits;
      ASSERT_LE(time_of(weights, rates), bound_of(rates) * rounding)
          << nodes << " nodes, round " << round << ", seed " << kWeightSeed;
      ASSERT_GE(gain_of(weights, rates), 1);
    }
  }
}

// The bound is 2 (n - 1) / sum only as long as no weight would be negative; these show what is best then.
TEST(OwnerWeights, NoOthersAreFaster) {
  std::mt19937_64 random(kWeightSeed);
  for (int round = 0; round < 50; ++round) {
    const std::vector<uint64_t> rates = random_rates(random, 4);
    std::vector<uint32_t> other(4);
    EXPECT_LE(time_of(owner_weights(rates), rates),
              best_of_all(rates, other, 0, kWeightUnits) * (1 + 16.0 / kWeightUnits));
  }
}

TEST(OwnerWeights, OfKnownRates) {
  const auto third = kWeightUnits / 3;
  const std::vector<uint64_t> one_at_half = {1000, 1000, 1000, 500};
  const std::vector<uint32_t> weights = owner_weights(one_at_half);
  EXPECT_EQ(weights[3], 0U);
  for (const size_t node : {0, 1, 2}) EXPECT_NEAR(weights[node], third, 1);
  EXPECT_NEAR(gain_of(weights, one_at_half), 1.5, 1e-3);
  const std::vector<uint64_t> eight = {8, 8, 8, 4, 8, 8, 8, 8};
  EXPECT_NEAR(gain_of(owner_weights(eight), eight), 1.75, 1e-3);
  const std::vector<uint64_t> equal = {7, 7, 7, 7};
  EXPECT_EQ(owner_weights(equal), std::vector<uint32_t>(4, kWeightUnits / 4));
  EXPECT_EQ(gain_of(owner_weights(equal), equal), 1);
  EXPECT_EQ(owner_weights(std::vector<uint64_t>{9, 1}), std::vector<uint32_t>(2, kWeightUnits / 2));
  EXPECT_EQ(owner_weights(std::vector<uint64_t>{3}), std::vector<uint32_t>{kWeightUnits});
  EXPECT_TRUE(owner_weights({}).empty());
}

TEST(OwnerWeights, AtTheLimitsNothingOverflows) {
  std::vector<uint64_t> rates(kMostWeightedNodes, kHighestWeightedRate);
  EXPECT_EQ(owner_weights(rates),
            std::vector<uint32_t>(kMostWeightedNodes, kWeightUnits / kMostWeightedNodes));
  std::fill(rates.begin() + 2, rates.end(), 0);
  const std::vector<uint32_t> weights = owner_weights(rates);
  EXPECT_EQ(weights[0] + weights[1], kWeightUnits);
}

TEST(OwnerWeights, BlocksAreWithinOneElement) {
  const std::vector<uint32_t> weights = owner_weights(std::vector<uint64_t>{10, 5, 9, 8});
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

}  // namespace
}  // namespace hdt::collectives::testing
