// grid_weights_test.cc: direct exchange in two levels with any blocks is proven, moves as much as the formula
// says, and the blocks for given rates are the best ones.
#include "collectives/grid_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

const uint64_t kGridSeed = std::random_device{}();

// Of links alone, or of links and engines, so that either may be what limits a node.
std::vector<OwnerRates> random_rates(std::mt19937_64& random, int nodes, bool engines) {
  std::vector<OwnerRates> rates;
  for (int node = 0; node < nodes; ++node) {
    const uint64_t link = 1'000'000 * (1 + random() % 8);
    const uint64_t combine = 500'000 * (1 + random() % 8);
    rates.push_back({.link = link, .combine = engines ? combine : 0});
  }
  return rates;
}

TEST(Grids, AreNearlySquareAndOnlyWhereThereAreMany) {
  for (const auto& [nodes, rows] : std::vector<std::pair<int, int>>{{2, 1},
                                                                    {8, 1},
                                                                    {11, 1},
                                                                    {12, 3},
                                                                    {13, 1},
                                                                    {16, 4},
                                                                    {26, 2},
                                                                    {32, 4},
                                                                    {36, 6},
                                                                    {60, 6},
                                                                    {61, 1},
                                                                    {64, 8}}) {
    const Grid grid = grid_of(nodes);
    EXPECT_EQ(grid.rows, rows) << nodes << " nodes";
    EXPECT_TRUE(rows == 1 || grid.rows * grid.columns == nodes) << nodes << " nodes";
  }
}

TEST(GridWeights, OneSlowNodeCostsMostOfTheWorkOfItsColumn) {
  std::vector<OwnerRates> rates(64, {.link = 1'000'000'000});
  rates[37].link = 500'000'000;
  const GridWeights best = grid_weights(rates);
  EXPECT_EQ(best.places.front(), 37);
  EXPECT_EQ(std::accumulate(best.weights.begin(), best.weights.end(), 0U), kWeightUnits);
  // Its column has so much that the slow node has only its own contribution and result to carry, and a little
  // of the stripe: (T / 2 - 1) / 7 of the data. The other seven columns, of 8 nodes each, share the rest.
  const double time = grid_seconds_of_a_byte(best, rates) * 1e9;
  const double of_slow = (time / 2 - 1) / 7;
  EXPECT_NEAR(time, 1 + (1 - of_slow) / 7 * (7 + 6.0 / 8), 1e-3);
  EXPECT_LT(time, 2 + 1.0 / 7);
  EXPECT_NEAR(grid_seconds_of_a_byte({}, rates) * 1e9, 2 * (2 - 2.0 / 64), 1e-9);
}

// Its stripe is what it can combine in that time; with equal blocks all would wait for it.
TEST(GridWeights, ASlowEngineHasAShortStripe) {
  std::vector<OwnerRates> rates(16, {.link = 1'000'000'000, .combine = 8'000'000'000});
  rates[5].combine = 100'000'000;
  const GridWeights best = grid_weights(rates);
  EXPECT_EQ(best.places.front(), 5);
  const double time = grid_seconds_of_a_byte(best, rates) * 1e9;
  EXPECT_NEAR(grid_seconds_of_a_byte({}, rates) * 1e9, 15.0 / 16 * 10, 1e-9);
  EXPECT_LT(time, 2 + 1.0 / 3);
  const uint32_t stripe = std::accumulate(best.weights.begin(), best.weights.begin() + 4, 0U);
  EXPECT_NEAR(stripe * 3.0 / kWeightUnits, time / 10, 1e-3);
  EXPECT_EQ(best.weights.front(), 0U);
  // Where the ranks of another node take longer than that, parts are as even as this allows.
  rates[9].local = 50'000'000;
  EXPECT_EQ(grid_weights(rates).weights, std::vector<uint32_t>(16, kWeightUnits / 16));
  EXPECT_EQ(grid_seconds_of_a_byte(grid_weights(rates), rates), 1 / 5e7);
}

TEST(GridWeights, OfEqualNodesAreEqual) {
  for (const OwnerRates& rates : {OwnerRates{.link = 7}, OwnerRates{7, 2, 5}, OwnerRates{7, 100, 1}}) {
    const GridWeights best = grid_weights(std::vector<OwnerRates>(16, rates));
    for (const uint32_t weight : best.weights) EXPECT_NEAR(weight, kWeightUnits / 16, 1);
  }
}

// Against blocks at random, and against the best ones with a little moved from one place to another.
TEST(GridWeights, NoneAreFaster) {
  std::mt19937_64 random(kGridSeed);
  for (const int nodes : {12, 14, 16, 24, 64}) {
    for (int round = 0; round < 40; ++round) {
      const std::vector<OwnerRates> rates = random_rates(random, nodes, round % 2 != 0);
      const GridWeights best = grid_weights(rates);
      ASSERT_EQ(std::accumulate(best.weights.begin(), best.weights.end(), 0U), kWeightUnits);
      const double least = grid_seconds_of_a_byte(best, rates);
      ASSERT_LE(least, grid_seconds_of_a_byte({best.places, {}}, rates) * 1.001) << "seed " << kGridSeed;
      for (int other = 0; other < 500; ++other) {
        GridWeights moved = best;
        uint32_t& from = moved.weights[random() % moved.weights.size()];
        const auto amount = static_cast<uint32_t>(random() % (from + 1));
        from -= amount;
        moved.weights[random() % moved.weights.size()] += amount;
        ASSERT_LE(least, grid_seconds_of_a_byte(moved, rates) * 1.001) << "seed " << kGridSeed;
      }
    }
  }
}

TEST(GridWeights, AtTheLimitsNothingOverflows) {
  constexpr uint64_t kMost = kHighestWeightedRate;
  std::vector<OwnerRates> rates(1'024, {kMost, kMost, kMost});
  for (const OwnerRates& odd : {OwnerRates{}, OwnerRates{kMost, 1, 0}, OwnerRates{1, kMost, 1}}) {
    rates[3] = odd;
    const GridWeights best = grid_weights(rates);
    EXPECT_EQ(std::accumulate(best.weights.begin(), best.weights.end(), uint64_t{0}), kWeightUnits);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kGridVectors = 4;
#else
constexpr int kGridVectors = 250;
#endif

// Random blocks, also empty ones; and one place that owns all. In any order of the nodes.
TEST(WeightedTwoLevel, IsProvenAndMovesWhatTheFormulaSays) {
  std::cout << "seed " << kGridSeed << ", vectors by nodes";
  std::mt19937_64 random(kGridSeed);
  for (int nodes = 12; nodes <= 64; ++nodes) {
    const Grid grid = grid_of(nodes);
    if (grid.rows == 1) continue;
    const int vectors = vectors_of(nodes, kGridVectors);
    std::cout << ", " << nodes << ": " << vectors;
    for (int round = 0; round < vectors; ++round) {
      Problem problem = make_problem(Collective::kAllReduce, nodes, Shape::kNothing);
      for (int place = 1; place <= nodes; ++place) {
        const uint64_t length = round == 0 ? 2 * (place == nodes / 2 + 1) : random() % 3;
        problem.block_offsets[place] = problem.block_offsets[place - 1] + length;
      }
      problem.places.resize(static_cast<size_t>(nodes));
      std::iota(problem.places.begin(), problem.places.end(), 0);
      if (round != 1) std::ranges::shuffle(problem.places, random);
      ASSERT_EQ(check(Algorithm::kTwoLevel, problem, scratch_needed(Algorithm::kTwoLevel, problem)), "")
          << nodes << " nodes, round " << round << ", seed " << kGridSeed;
      const auto lists = all_steps(Algorithm::kTwoLevel, problem);
      const auto length_of = [&](int from, int to) {
        return problem.block_offsets[static_cast<size_t>(to)] -
               problem.block_offsets[static_cast<size_t>(from)];
      };
      for (int place = 0; place < nodes; ++place) {
        const int first = place / grid.rows * grid.rows;
        const uint64_t own = length_of(place, place + 1);
        const uint64_t stripe = length_of(first, first + grid.rows);
        const StepList& list = lists[static_cast<size_t>(problem.places[static_cast<size_t>(place)])];
        const uint64_t of_stripe = stripe * static_cast<uint64_t>(grid.columns - 1);
        EXPECT_EQ(sent_elements(list),
                  problem.elements() + own * static_cast<uint64_t>(grid.rows - 2) + of_stripe);
        EXPECT_EQ(combined_elements(list), own * static_cast<uint64_t>(grid.rows - 1) + of_stripe);
      }
    }
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace hdt::collectives::testing
