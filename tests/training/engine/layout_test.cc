// layout_test.cc: numbering of ranks and ranges of units.
#include "training/engine/layout.h"

#include <gtest/gtest.h>

namespace hdt::training {
namespace {

Layout three_and_two(RankOrder order) { return Layout(4, {{{2, 1, 1}, 2, 3}, {{2, 2}, 4, 1}}, order); }

TEST(LayoutTest, TpPpDpNumbersReplicaByReplica) {
  const Layout layout = three_and_two(RankOrder::kTpPpDp);
  EXPECT_EQ(layout.world_size(), 5);
  EXPECT_EQ(layout.rank_of({0, 2}), 2);
  EXPECT_EQ(layout.rank_of({1, 0}), 3);
}

TEST(LayoutTest, TpDpPpNumbersStageByStage) {
  const Layout layout = three_and_two(RankOrder::kTpDpPp);
  EXPECT_EQ(layout.rank_of({1, 0}), 1);
  EXPECT_EQ(layout.rank_of({0, 1}), 2);
  EXPECT_EQ(layout.rank_of({0, 2}), 4);  // only replica 0 has a third stage
}

TEST(LayoutTest, RankAndPositionAreInverse) {
  for (const RankOrder order : {RankOrder::kTpDpPp, RankOrder::kTpPpDp}) {
    const Layout layout = three_and_two(order);
    for (int rank = 0; rank < layout.world_size(); ++rank)
      EXPECT_EQ(layout.rank_of(layout.position_of(rank)), rank);
  }
}

TEST(LayoutTest, StagesOfAReplicaCoverAllUnitsOnce) {
  const Layout layout = three_and_two(RankOrder::kTpPpDp);
  EXPECT_EQ(layout.units_of({0, 0}), (UnitRange{0, 3}));
  EXPECT_EQ(layout.units_of({0, 1}), (UnitRange{3, 4}));
  EXPECT_EQ(layout.units_of({0, 2}), (UnitRange{4, 6}));
  EXPECT_EQ(layout.units_of({1, 1}), (UnitRange{3, 6}));
  EXPECT_EQ(layout.owner_of(4, 0), layout.rank_of({0, 2}));
}

TEST(LayoutTest, OneStageHoldsEverything) {
  const Layout layout(4, {{{4}, 1, 1}}, RankOrder::kTpDpPp);
  EXPECT_EQ(layout.units_of({0, 0}), (UnitRange{0, 6}));
}

// Two stages of two chunks beside one stage: the stages take turns along the model.
TEST(LayoutTest, ChunksOfAStageAreRangesOfTheModel) {
  const Layout layout(7, {{{1, 2, 1, 3}, 1, 2, 2}, {{7}, 1, 1}}, RankOrder::kTpPpDp);
  ASSERT_EQ(layout.world_size(), 3);
  EXPECT_EQ(layout.ranges_of(0), (std::vector<UnitRange>{{0, 2}, {4, 5}}));
  EXPECT_EQ(layout.ranges_of(1), (std::vector<UnitRange>{{2, 4}, {5, 9}}));
  EXPECT_EQ(layout.ranges_of(2), (std::vector<UnitRange>{{0, 9}}));
  EXPECT_EQ(layout.units_of({0, 1, 1}), (UnitRange{5, 9}));
  EXPECT_EQ(layout.owner_of(3, 0), 1);
  EXPECT_EQ(layout.owner_of(4, 0), 0);
  EXPECT_EQ(layout.owner_of(8, 0), 1);
}

TEST(LayoutTest, ReplicasTakeConsecutiveSamples) {
  const Layout layout = three_and_two(RankOrder::kTpPpDp);
  EXPECT_EQ(layout.first_sample(0), 0);
  EXPECT_EQ(layout.first_sample(1), 6);
  EXPECT_EQ(layout.global_batch_size(), 10);
}

}  // namespace
}  // namespace hdt::training
