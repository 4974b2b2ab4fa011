// unequal_memory_test.cc: parts of nodes whose memory is slower than that of others.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/group/cost_measurements.h"
#include "daemon/group/explanation.h"
#include "daemon/group/tuner.h"
#include "tests/unit/daemon_group/tuner_fixture.h"

namespace hdt::daemon {
namespace {

using collectives::Algorithm;
using collectives::Collective;
using ipc::Call;
using ipc::Layout;
using ipc::LinkRates;
using ipc::NodeRates;
using ipc::Order;

// All links carry 1 GB/s; the memory of node 2, or of the last of two, is as fast as is said.
std::vector<NodeRates> slow_memory(uint32_t nodes, uint64_t bytes_s) {
  std::vector<NodeRates> table(nodes,
                               {{8'000'000'000, 8'000'000'000},
                                std::vector<LinkRates>(nodes, {10'000, 1'000'000'000, 1'000'000'000})});
  table.at(nodes == 2 ? 1 : 2).memory = {bytes_s, bytes_s};
  return table;
}

TEST(UnequalMemory, IsGivenUnequalParts) {
  const Order order = one_rank_each(4);
  Tuner tuner(Layout(4, 4, 1), order, std::nullopt);
  const Call large = call_of(Collective::kAllReduce, 16'000'000);
  tuner.set_measurements(cost_measurements(slow_memory(4, 100'000'000)));
  EXPECT_EQ(tuner.decide(large).algorithm, Algorithm::kPairwise);
  EXPECT_EQ(tuner.decide(large).reason, Reason::kPredicted);
  const auto weights = tuner.weights_of(large, Algorithm::kPairwise);
  ASSERT_EQ(weights.size(), 4U);
  // T / 30 of all, where T = 1 + 2 / 3 (1 - T / 30) in ns a byte by the other nodes' links.
  EXPECT_NEAR(weights[2], collectives::kWeightUnits * (5.0 / 3 / (1 + 1.0 / 45)) / 30, 4);
  EXPECT_NEAR(weights[0], weights[3], 2);
  const auto predictions = tuner.predictions(large);
  const auto seconds = [&](Algorithm algorithm) {
    return std::ranges::find(predictions, algorithm, &collectives::Candidate::algorithm)->seconds;
  };
  EXPECT_GT(seconds(Algorithm::kRing), 3 * seconds(Algorithm::kPairwise));
  const Explanation explained = explain(tuner, large, "dp", 0);
  EXPECT_EQ(explained.slowest_node, 2U);
  EXPECT_TRUE(explained.waits_for_memory);
  EXPECT_EQ(explained.rates.at(2).combine, 100'000'000U);
  EXPECT_GT(explained.equal_parts_s, 3 * seconds(Algorithm::kPairwise));
  // A reduce-scatter by counts and an allgather gain together where that node holds a half.
  EXPECT_EQ(tuner.holder_rates()[2], 100'000'000U);
  // Memory that is only as much slower as no link waits for changes nothing.
  tuner.set_measurements(cost_measurements(slow_memory(4, 500'000'000)));
  EXPECT_TRUE(tuner.weights_of(large, Algorithm::kPairwise).empty());
  EXPECT_EQ(tuner.decide(large).reason, Reason::kInPlace);
}

TEST(UnequalMemory, CountsBetweenTwoNodesAndInAGrid) {
  const Call large = call_of(Collective::kAllReduce, 16'000'000);
  const Order two = one_rank_each(2);
  Tuner of_two(Layout(2, 2, 1), two, std::nullopt);
  of_two.set_measurements(cost_measurements(slow_memory(2, 100'000'000)));
  const auto weights = of_two.weights_of(large, Algorithm::kPairwise);
  ASSERT_EQ(weights.size(), 2U);
  EXPECT_NEAR(weights[1], collectives::kWeightUnits / 10, 1);  // while its link carries everything
  EXPECT_EQ(of_two.decide(large).algorithm, Algorithm::kPairwise);
  const Order many = one_rank_each(12);
  Tuner of_many(Layout(12, 12, 1), many, Algorithm::kTwoLevel);
  of_many.set_measurements(cost_measurements(slow_memory(12, 100'000'000)));
  EXPECT_EQ(of_many.decide(large).reason, Reason::kConfigured);
  const Explanation explained = explain(of_many, large, "dp", 0);
  ASSERT_EQ(explained.weights.size(), 12U);
  EXPECT_EQ(std::ranges::min_element(explained.weights) - explained.weights.begin(), 2);
  EXPECT_EQ(explained.slowest_node, 2U);
}

// Each rank copies in and out and combines its share, all at once. Several ranks of a node with slow memory
// take longer for that than its engine takes to combine, and no parts change that.
TEST(UnequalMemory, IsNoReasonForUnequalPartsWhereTheRanksOfANodeTakeLonger) {
  const Call large = call_of(Collective::kAllReduce, 16'000'000);
  const Order order({0, 1, 2, 2, 2, 2, 3}, 4);
  Tuner tuner(Layout(7, 4, 1), order, std::nullopt);
  tuner.set_measurements(cost_measurements(slow_memory(4, 100'000'000)));
  EXPECT_EQ(tuner.rates()[2].local, 36'363'636U);  // 100 MB/s / (2 + 3 / 4)
  EXPECT_EQ(tuner.rates()[0].local, 0U);
  EXPECT_TRUE(tuner.weights_of(large, Algorithm::kPairwise).empty());
  // Ranks of a node with fast memory are no limit.
  const Order elsewhere({0, 1, 1, 1, 1, 2, 3}, 4);
  Tuner other(Layout(7, 4, 1), elsewhere, std::nullopt);
  other.set_measurements(cost_measurements(slow_memory(4, 100'000'000)));
  EXPECT_EQ(other.rates()[1].local, 2'909'090'909U);
  EXPECT_EQ(other.weights_of(large, Algorithm::kPairwise).size(), 4U);
}

// The memory is the one that was measured at the start.
TEST(UnequalMemory, StillCountsWhenLinksChange) {
  const Order order = one_rank_each(4);
  Tuner tuner(Layout(4, 4, 1), order, std::nullopt);
  std::vector<ipc::LinkPart> parts(16, ipc::kWholeLink);
  for (size_t peer = 0; peer < 4; ++peer) {
    for (const size_t link : {peer, 4 * peer}) parts[link] = static_cast<ipc::LinkPart>(ipc::kWholeLink / 2);
  }
  tuner.set_measurements(cost_measurements(with_parts(slow_memory(4, 100'000'000), parts)));
  EXPECT_EQ(tuner.rates()[0].link, 500'000'000U);
  EXPECT_EQ(tuner.rates()[2].combine, 100'000'000U);
  const auto weights = tuner.weights();
  ASSERT_EQ(weights.size(), 4U);
  EXPECT_EQ(weights[0], 0U);
  EXPECT_NEAR(weights[2], collectives::kWeightUnits / 15, 1);  // 2 ns a byte by the slow link
  EXPECT_NEAR(weights[1], weights[3], 1);
}

}  // namespace
}  // namespace hdt::daemon
