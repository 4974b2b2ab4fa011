// grid_weights_test.cc: direct exchange in two levels with any blocks is proven, moves as much as the formula
// says, and the blocks for given rates are the best ones.
#include "collectives/grid_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

#include "collectives/owner_weights.h"
#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

const uint64_t kGridSeed = std::random_device{}();

std::vector<uint64_t> random_rates(std::mt19937_64& random, int nodes) {
  std::vector<uint64_t> rates;
  for (int node = 0; node < nodes; ++node) rates.push_back(1'000'000 * (1 + random() % 8));
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
  std::vector<uint64_t> rates(64, 1'000'000'000);
  rates[37] = 500'000'000;
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

TEST(GridWeights, OfEqualNodesAreEqual) {
  const GridWeights best = grid_weights(std::vector<uint64_t>(16, 7));
  for (const uint32_t weight : best.weights) EXPECT_EQ(weight, kWeightUnits / 16);
}

// Against blocks at random, and against the best ones with a little moved from one place to another.
TEST(GridWeights, NoneAreFaster) {
  std::mt19937_64 random(kGridSeed);
  for (const int nodes : {12, 14, 16, 24, 64}) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<uint64_t> rates = random_rates(random, nodes);
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
  std::vector<uint64_t> rates(1'024, kHighestWeightedRate);
  rates[3] = 0;
  const GridWeights best = grid_weights(rates);
  EXPECT_EQ(std::accumulate(best.weights.begin(), best.weights.end(), uint64_t{0}), kWeightUnits);
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
        EXPECT_EQ(sent_elements(lists[static_cast<size_t>(problem.places[static_cast<size_t>(place)])]),
                  problem.elements() + own * static_cast<uint64_t>(grid.rows - 2) +
                      stripe * static_cast<uint64_t>(grid.columns - 1));
      }
    }
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace hdt::collectives::testing
