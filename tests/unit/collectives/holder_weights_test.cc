// holder_weights_test.cc: the weights against the bound and against all others, the far ends of chains, and
// chains with any far end against the checker.
#include "collectives/holder_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

#include "tests/unit/collectives/owner_rates.h"
#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kHolderRounds = 20;
#else
constexpr int kHolderRounds = 200;
#endif

uint64_t new_seed() {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  return seed;
}

// Of an allgather of one byte, whatever the algorithm is.
double seconds_of(const std::vector<uint32_t>& weights, const std::vector<uint64_t>& rates) {
  double longest = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double held = static_cast<double>(weights[i]) / kWeightUnits;
    longest = std::max(longest, std::max(held, 1 - held) / static_cast<double>(rates[i]));
  }
  return longest;
}

// The best of all weights in `steps` steps.
double best_of(const std::vector<uint64_t>& rates, std::vector<uint32_t>& weights, size_t node, uint32_t left,
               uint32_t steps) {
  if (node + 1 == rates.size()) {
    weights[node] = left;
    return seconds_of(weights, rates);
  }
  double best = 1e300;
  for (uint32_t taken = 0; taken <= left; taken += kWeightUnits / steps) {
    weights[node] = taken;
    best = std::min(best, best_of(rates, weights, node + 1, left - taken, steps));
  }
  return best;
}

std::vector<uint64_t> some_rates(std::mt19937_64& random, size_t nodes) {
  std::vector<uint64_t> rates(nodes);
  const uint64_t widest = uint64_t{1} << (1 + random() % 40);
  for (uint64_t& rate : rates) rate = 1 + random() % widest;
  return rates;
}

// What the nodes send in chains with these far ends, in units: everything but what they are at the far end
// of.
std::vector<double> sent_by(const std::vector<uint32_t>& weights, const std::vector<uint32_t>& held) {
  constexpr uint32_t kPlaces = 1024;
  const auto nodes = static_cast<int>(weights.size());
  std::vector<double> sent(weights.size(), kWeightUnits);
  for (int root = 0; root < nodes; ++root) {
    for (uint32_t place = 0; place < kWeightUnits; place += kWeightUnits / kPlaces) {
      const int far_end = far_end_of(weights, root, place);
      EXPECT_TRUE(far_end >= 0 && far_end < nodes && far_end != root) << far_end;
      if (far_end >= 0) sent[far_end] -= static_cast<double>(held[root]) / kPlaces;
    }
  }
  return sent;
}

TEST(HolderWeights, AddUpAndNobodyHoldsMoreThanAHalf) {
  std::mt19937_64 random(new_seed());
  for (size_t nodes = 2; nodes <= kMostWeightedNodes; nodes += 1 + nodes / 4) {
    for (int round = 0; round < kHolderRounds; ++round) {
      const std::vector<uint32_t> weights = holder_weights(some_rates(random, nodes));
      ASSERT_EQ(std::accumulate(weights.begin(), weights.end(), uint64_t{0}), kWeightUnits) << nodes;
      ASSERT_LE(std::ranges::max(weights), kWeightUnits / 2) << nodes;
    }
  }
}

TEST(HolderWeights, NoOthersAreFaster) {
  std::mt19937_64 random(new_seed());
  for (size_t nodes = 2; nodes <= 4; ++nodes) {
    for (int round = 0; round < kHolderRounds / 4; ++round) {
      const std::vector<uint64_t> rates = some_rates(random, nodes);
      std::vector<uint32_t> other(nodes);
      // A weight may be less than a unit below the best one.
      ASSERT_LE(seconds_of(holder_weights(rates), rates),
                best_of(rates, other, 0, kWeightUnits, nodes == 4 ? 32 : 128) * (1 + 4.0 / kWeightUnits))
          << nodes << " nodes, round " << round;
    }
  }
}

TEST(HolderWeights, OfKnownRates) {
  const auto sixth = kWeightUnits / 6.0;
  const std::vector<uint64_t> one_at_half = {1000, 500, 1000, 1000};
  const std::vector<uint32_t> weights = holder_weights(one_at_half);
  EXPECT_EQ(weights[1], kWeightUnits / 2);
  for (const size_t node : {0, 2, 3}) EXPECT_NEAR(weights[node], sixth, 1);
  EXPECT_NEAR(seconds_of(weights, one_at_half) * 1000, 1, 1e-3);  // and 1.5 with equal ones
  const std::vector<uint64_t> three_slow = {1000, 500, 500, 500};
  const std::vector<uint32_t> of_slow = holder_weights(three_slow);
  EXPECT_LE(of_slow[0], 3U);
  EXPECT_NEAR(seconds_of(of_slow, three_slow) * 1000, 4.0 / 3, 1e-3);
  EXPECT_EQ(holder_weights(std::vector<uint64_t>{1000, 1000, 250, 250}),
            (std::vector<uint32_t>{0, 0, kWeightUnits / 2, kWeightUnits / 2}));
  EXPECT_EQ(holder_weights(std::vector<uint64_t>(4, 7)), std::vector<uint32_t>(4, kWeightUnits / 4));
  EXPECT_EQ(holder_weights(std::vector<uint64_t>{9, 1}), std::vector<uint32_t>(2, kWeightUnits / 2));
  EXPECT_EQ(holder_weights(std::vector<uint64_t>{3}), std::vector<uint32_t>{kWeightUnits});
}

TEST(HolderWeights, AtTheLimitsNothingOverflows) {
  std::vector<uint64_t> rates(kMostWeightedNodes, kHighestWeightedRate);
  EXPECT_EQ(holder_weights(rates),
            std::vector<uint32_t>(kMostWeightedNodes, kWeightUnits / kMostWeightedNodes));
  rates.back() = 0;
  const std::vector<uint32_t> one_slow = holder_weights(rates);
  EXPECT_EQ(one_slow.back(), kWeightUnits / 2);
  const std::vector<uint32_t> equal(kMostWeightedNodes, 1);
  EXPECT_TRUE(holders_gain(one_slow, equal, rates));
  std::fill(rates.begin(), rates.end(), 0);
  EXPECT_FALSE(holders_gain(holder_weights(rates), equal, rates));
}

// A reduce-scatter and an allgather of one byte.
double seconds_of_both(const std::vector<uint32_t>& weights, const std::vector<OwnerRates>& rates) {
  double allgather = 0;
  double reduce_scatter = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double held = static_cast<double>(weights[i]) / kWeightUnits;
    const double moved = std::max(held, 1 - held) / static_cast<double>(rates[i].link);
    allgather = std::max(allgather, moved);
    reduce_scatter = std::max(reduce_scatter, moved);
    if (rates[i].combine != 0)
      reduce_scatter = std::max(reduce_scatter, (1 - held) / static_cast<double>(rates[i].combine));
  }
  return allgather + reduce_scatter;
}

TEST(HolderRates, AreTheEnginesOnlyWhereBothCallsTogetherGain) {
  std::vector<OwnerRates> rates(4, {.link = 1000, .combine = 8000});
  EXPECT_EQ(holder_rates(rates), std::vector<uint64_t>(4, 1000));
  // 1 + 5/6 of a byte's ms with a half at the slow engine, and 1.5 + 0.75 with equal parts.
  rates[2].combine = 500;
  EXPECT_EQ(holder_rates(rates), (std::vector<uint64_t>{1000, 1000, 500, 1000}));
  // A reduce-scatter gains 10.7 % here, and an allgather loses 22.5 %.
  for (const size_t slow : {0, 1, 2}) rates[slow].combine = 700;
  EXPECT_EQ(holder_rates(rates), std::vector<uint64_t>(4, 1000));
  EXPECT_EQ(holder_rates(std::vector<OwnerRates>(3, {.link = 5})), std::vector<uint64_t>(3, 5));
}

TEST(HolderRates, MakeBothCallsNoSlowerThanEqualPartsOrThoseOfTheLinks) {
  std::mt19937_64 random(new_seed());
  int by_engines = 0;
  for (int round = 0; round < 10 * kHolderRounds; ++round) {
    const size_t nodes = 2 + random() % 8;
    const std::vector<OwnerRates> rates = random_owner_rates(random, nodes);
    std::vector<uint64_t> links;
    for (const OwnerRates& each : rates) links.push_back(each.link);
    const std::vector<uint64_t> best = holder_rates(rates);
    const double seconds = seconds_of_both(holder_weights(best), rates);
    ASSERT_LE(seconds, seconds_of_both(holder_weights(links), rates) * (1 + 1e-9)) << "round " << round;
    if (best == links) continue;
    ++by_engines;
    const std::vector<uint32_t> equal(nodes, kWeightUnits / static_cast<uint32_t>(nodes));
    ASSERT_LE(seconds, seconds_of_both(equal, rates)) << "round " << round;
  }
  EXPECT_GT(by_engines, 0);
}

TEST(HoldersGain, FromATenthOn) {
  // With n = 4: 1 / (2 b) against 3 / (4 b) where one link is half as fast as the others or slower.
  const std::vector<uint32_t> equal(4, 1);
  const auto gains = [&](uint64_t slow) {
    const std::vector<uint64_t> rates = {1000, 1000, 1000, slow};
    return holders_gain(holder_weights(rates), equal, rates);
  };
  EXPECT_TRUE(gains(500));
  EXPECT_TRUE(gains(800));   // (3 / 4) / 800 against 3 / 3800
  EXPECT_FALSE(gains(890));  // against 3 / 3890: 9.3 %
  EXPECT_FALSE(gains(1000));
  // Shares that are worse than equal ones are beaten by equal ones.
  const std::vector<uint64_t> alike(2, 1000);
  EXPECT_TRUE(holders_gain(holder_weights(alike), std::vector<uint32_t>{3, 1}, alike));
}

// Chains carry what the derivation says: nobody sends longer than the least time. With equal blocks they are
// no slower than a ring, where each node sends all but one block.
TEST(FarEnds, LoadEveryNodeAsTheBoundSays) {
  std::mt19937_64 random(new_seed());
  for (size_t nodes = 3; nodes <= 9; ++nodes) {
    for (int round = 0; round < kHolderRounds / 10; ++round) {
      const std::vector<uint64_t> rates = some_rates(random, nodes);
      const std::vector<uint32_t> weights = holder_weights(rates);
      const double bound = seconds_of(weights, rates);
      const std::vector<uint32_t> equal(nodes, kWeightUnits / static_cast<uint32_t>(nodes));
      const double ring = seconds_of(equal, rates);
      const std::vector<double> sent = sent_by(weights, weights);
      const std::vector<double> of_equal = sent_by(weights, equal);
      for (size_t node = 0; node < nodes; ++node) {
        const auto rate = static_cast<double>(rates[node]) * kWeightUnits;
        // The places are 1,024 of a block.
        ASSERT_LE(sent[node] / rate, bound * 1.01) << nodes << " nodes, round " << round << ", node " << node;
        ASSERT_LE(of_equal[node] / rate, ring * 1.01)
            << nodes << " nodes, round " << round << ", node " << node;
      }
    }
  }
}

// Every root, every far end.
TEST(Chain, IsProvenWithAnyFarEnd) {
  for (int nodes = 2; nodes <= 64; ++nodes) {
    const int stride = nodes <= 16 ? 1 : nodes / 8;
    for (const Collective what : {Collective::kBroadcast, Collective::kReduce}) {
      for (int root = 0; root < nodes; root += stride) {
        for (int far_end = 0; far_end < nodes; far_end += nodes <= 16 ? 1 : stride - 1) {
          if (far_end == root) continue;
          // A chain moves the chunk as a whole, so one element shows as much as many.
          Problem problem = make_problem(what, nodes, nodes <= 8 ? Shape::kEqual : Shape::kOneElement, root);
          problem.far_end = far_end;
          ASSERT_EQ(check(Algorithm::kRing, problem, scratch_needed(Algorithm::kRing, problem)), "")
              << name_of(what) << ", " << nodes << " nodes, root " << root << ", far end " << far_end;
          problem.me = far_end;
          const auto list = list_steps(*make_schedule(Algorithm::kRing, problem), 2);
          ASSERT_TRUE(list.has_value());
          ASSERT_EQ(list->steps.size(), 1U) << "the far end forwards nothing";
        }
      }
    }
  }
}

TEST(Chain, AFarEndThatIsNoOtherNodeIsRefused) {
  Problem problem = make_problem(Collective::kBroadcast, 4, Shape::kEqual, 1);
  for (const int wrong : {1, 4, -2}) {
    problem.far_end = wrong;
    const std::vector<StepList> none(4);
    EXPECT_NE(check(none, problem, 0).find("far_end"), std::string::npos) << wrong;
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
