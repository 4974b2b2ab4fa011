// rank_algorithms_test.cc: who comes first on which network, who is left out and why, and that all nodes
// agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/collectives/cost_fixture.h"

namespace hdt::collectives::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPlenty = uint64_t{1} << 40;
const Candidate& find(const std::vector<Candidate>& ranked, Algorithm algorithm) {
  return *std::find_if(ranked.begin(), ranked.end(),
                       [&](const Candidate& c) { return c.algorithm == algorithm; });
}

TEST(RankAlgorithms, NamesEveryAlgorithmOnceTheFastestFirst) {
  for (int what = 0; what < kCollectiveCount; ++what) {
    for (const int nodes : {1, 2, 3, 8, 13}) {
      const auto ranked =
          rank_algorithms(operation(static_cast<Collective>(what), nodes, 1000), kPlenty, kEthernet);
      ASSERT_EQ(ranked.size(), static_cast<size_t>(kAlgorithmCount));
      std::set<Algorithm> named;
      for (size_t i = 0; i < ranked.size(); ++i) {
        named.insert(ranked[i].algorithm);
        if (i == 0) continue;
        const bool was_left_out = !ranked[i - 1].left_out.empty();
        EXPECT_TRUE(!ranked[i].left_out.empty() ||
                    (!was_left_out && ranked[i - 1].seconds <= ranked[i].seconds));
      }
      EXPECT_EQ(named.size(), ranked.size());
      EXPECT_EQ(ranked[0].left_out, "");
    }
  }
}

TEST(RankAlgorithms, TellsTheTimesThatArePredicted) {
  const Operation op = operation(Collective::kAllReduce, 8, 10000, 3);
  int predicted = 0;
  for (const Candidate& candidate : rank_algorithms(op, kPlenty, kEthernet)) {
    if (!candidate.left_out.empty()) continue;
    EXPECT_EQ(candidate.seconds, predict(candidate.algorithm, op, kEthernet));
    EXPECT_GT(candidate.seconds, 0);
    ++predicted;
  }
  EXPECT_GE(predicted, 6);
}

TEST(RankAlgorithms, TakesFewStepsForSmallChunksAndFewBytesForLongOperations) {
  const auto small = rank_algorithms(operation(Collective::kAllReduce, 8, 16), kPlenty, kEthernet);
  EXPECT_EQ(small[0].algorithm, Algorithm::kRecursiveDoubling);
  const auto small_uneven = rank_algorithms(operation(Collective::kAllReduce, 23, 16), kPlenty, kEthernet);
  EXPECT_EQ(small_uneven[0].algorithm, Algorithm::kBruck);
  const auto large = rank_algorithms(operation(Collective::kAllReduce, 7, 65536, 256), kPlenty, kEthernet);
  EXPECT_EQ(large[0].algorithm, Algorithm::kRing);
  const auto one_to_all =
      rank_algorithms(operation(Collective::kBroadcast, 16, 65536, 4), kPlenty, kEthernet);
  EXPECT_EQ(one_to_all[0].algorithm, Algorithm::kDoubleBinaryTree);
}

TEST(RankAlgorithms, CountsMessagesWhereStepsCostMuch) {
  CostMeasurements measurements{{10e-6, 1.25e9}, 0, 8e9, 1e10, {}};
  const Operation op = operation(Collective::kAllGather, 64, 64);
  EXPECT_EQ(rank_algorithms(op, kPlenty, measurements)[0].algorithm, Algorithm::kPairwise);
  measurements.step_overhead_s = 5e-6;
  EXPECT_EQ(rank_algorithms(op, kPlenty, measurements)[0].algorithm, Algorithm::kHalvingDoubling);
}

// It is far from the root to all but the next node, and not far from there.
TEST(RankAlgorithms, LooksAtEachLink) {
  const Operation op = operation(Collective::kBroadcast, 4, 16);
  EXPECT_EQ(rank_algorithms(op, kPlenty, kEthernet)[0].algorithm, Algorithm::kHalvingDoubling);
  CostMeasurements measurements = kEthernet;
  measurements.link_of = [](int from, int to) {
    const bool long_way = std::min(from, to) == 0 && std::max(from, to) >= 2;
    return LinkMeasurements{long_way ? 1e-3 : 10e-6, 1.25e9};
  };
  EXPECT_EQ(rank_algorithms(op, kPlenty, measurements)[0].algorithm, Algorithm::kRing);
}

TEST(RankAlgorithms, LeavesOutWhatDoesNotFitOrIsListedAlready) {
  const auto ranked = rank_algorithms(operation(Collective::kAllReduce, 8, 1000), 1000, kEthernet);
  EXPECT_EQ(find(ranked, Algorithm::kRecursiveDoubling).left_out,
            "needs 3000 elements of scratch, a node has 1000");
  EXPECT_EQ(find(ranked, Algorithm::kRing).left_out, "");
  const auto seven = rank_algorithms(operation(Collective::kAllReduce, 7, 1000), kPlenty, kEthernet);
  EXPECT_EQ(find(seven, Algorithm::kRecursiveDoubling).left_out, "takes the same steps as halving_doubling");
  const auto one = rank_algorithms(operation(Collective::kAllReduce, 1, 1000), kPlenty, kEthernet);
  EXPECT_EQ(one[0].algorithm, Algorithm::kRing);
  EXPECT_THAT(one[1].left_out, HasSubstr("same steps as ring"));
}

TEST(RankAlgorithms, IsTheSameOnEveryNode) {
  Operation op = operation(Collective::kAllReduce, 13, 12345, 7);
  const auto first = rank_algorithms(op, kPlenty, kEthernet);
  for (op.chunk.me = 1; op.chunk.me < op.chunk.nodes; ++op.chunk.me) {
    const auto ranked = rank_algorithms(op, kPlenty, kEthernet);
    for (size_t i = 0; i < ranked.size(); ++i) {
      EXPECT_EQ(ranked[i].algorithm, first[i].algorithm);
      EXPECT_EQ(ranked[i].seconds, first[i].seconds);
      EXPECT_EQ(ranked[i].left_out, first[i].left_out);
    }
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
