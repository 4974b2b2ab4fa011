// ownership_test.cc: owner sets, rounds of splits and buckets, also over random layouts.
#include "training/engine/ownership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

namespace hdt::training {
namespace {

TEST(OwnershipTest, OwnersDifferWhereSplitsDo) {
  // Replica 0 (ranks 0, 1): 3 + 1 layers; replica 1 (ranks 2, 3): 2 + 2.
  const Layout layout(4, {{{3, 1}}, {{2, 2}}}, RankOrder::kTpPpDp);
  const std::vector<OwnerSet> sets = owner_sets(layout);
  ASSERT_EQ(sets.size(), 3U);
  EXPECT_EQ(sets[0].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(sets[0].units, (UnitRange{0, 3}));
  EXPECT_EQ(sets[1].ranks, (std::vector<int>{0, 3}));
  EXPECT_EQ(sets[1].units, (UnitRange{3, 4}));
  EXPECT_EQ(sets[2].ranks, (std::vector<int>{1, 3}));
  EXPECT_EQ(sets[2].units, (UnitRange{4, 6}));
  EXPECT_EQ(disjoint_rounds(sets), (std::vector<std::vector<int>>{{0, 2}, {1}}));
}

TEST(OwnershipTest, EqualSplitsNeedOneRound) {
  const Layout layout(4, {{{2, 1, 1}}, {{2, 1, 1}}, {{2, 1, 1}}}, RankOrder::kTpDpPp);
  const std::vector<OwnerSet> sets = owner_sets(layout);
  EXPECT_EQ(sets.size(), 3U);
  EXPECT_EQ(disjoint_rounds(sets).size(), 1U);
}

TEST(OwnershipTest, RanksThatShareSeveralRowsHaveOneGroup) {
  // Two chunks on each of two stages, in both replicas: rank 0 has units 0 to 1 and 3, rank 1 the others.
  const Layout layout(4, {{{1, 1, 1, 1}, 1, 2, 2}, {{1, 1, 1, 1}, 1, 2, 2}}, RankOrder::kTpPpDp);
  const std::vector<OwnerSet> sets = owner_sets(layout);
  ASSERT_EQ(sets.size(), 4U);
  EXPECT_EQ(sets[0].ranks, sets[2].ranks);
  EXPECT_EQ(sets[1].ranks, sets[3].ranks);
  EXPECT_EQ(owner_groups(sets), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(disjoint_rounds(sets), (std::vector<std::vector<int>>{{0, 1}}));
}

TEST(OwnershipTest, ATiedMatrixSharesTheGroupOfItsOwnersWhereReplicasHaveOneStage) {
  const std::vector<OwnerSet> sets =
      owner_sets(Layout(4, {{{4}}, {{4}}}, RankOrder::kTpPpDp).with_tied_unit());
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(owner_groups(sets), (std::vector<int>{0, 0}));
  // Here it has more owners than the other sets.
  const std::vector<OwnerSet> unequal =
      owner_sets(Layout(4, {{{4}}, {{2, 2}}}, RankOrder::kTpPpDp).with_tied_unit());
  EXPECT_EQ(owner_groups(unequal), (std::vector<int>{0, 1, 2}));
}

TEST(OwnershipTest, BucketsFillUpFromTheEnd) {
  const std::vector<OwnerSet> sets = {{{0, 2}, {0, 3}}, {{0, 3}, {3, 4}}};
  const std::vector<size_t> sizes = {100, 10, 10, 10};
  const std::vector<Bucket> buckets = plan_buckets(
      sets, UnitRange{0, 4}.numbers(), [&](int unit) { return sizes[unit]; }, 25);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[0].units, (UnitRange{3, 4}));  // a set of its own
  EXPECT_EQ(buckets[1].units, (UnitRange{1, 3}));
  EXPECT_EQ(buckets[2].units, (UnitRange{0, 1}));  // larger than a bucket
}

// All units of a rank, in rising order.
std::vector<int> units_of(const Layout& layout, int rank) {
  std::vector<int> units;
  for (const UnitRange& range : layout.ranges_of(rank))
    std::ranges::copy(range.numbers(), std::back_inserter(units));
  return units;
}

std::vector<int> random_split(int layers, std::mt19937& random) {
  std::vector<int> split;
  while (layers > 0) {
    split.push_back(std::uniform_int_distribution<int>(1, layers)(random));
    layers -= split.back();
  }
  return split;
}

TEST(OwnershipTest, RandomLayouts) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const int layers = std::uniform_int_distribution<int>(1, 12)(random);
    std::vector<Replica> replicas(std::uniform_int_distribution<int>(1, 5)(random));
    for (Replica& replica : replicas) {
      replica.stage_layers = random_split(layers, random);
      // Chunks where the number of virtual stages allows at least two stages.
      const int parts = replica.virtual_stages();
      for (int chunks = 2; chunks <= parts / 2; ++chunks) {
        if (parts % chunks == 0 && std::uniform_int_distribution<int>(0, 1)(random) == 0)
          replica.chunks = chunks;
      }
    }
    const Layout layout(layers, replicas, round % 2 == 0 ? RankOrder::kTpPpDp : RankOrder::kTpDpPp);
    const std::vector<OwnerSet> sets = owner_sets(layout);

    // Every unit is in one set, whose ranks are its owners, one a replica.
    int next = 0;
    for (const OwnerSet& set : sets) {
      EXPECT_EQ(set.units.first, next);
      next = set.units.end;
      ASSERT_EQ(set.ranks.size(), replicas.size());
      for (int unit = set.units.first; unit < set.units.end; ++unit) {
        for (int r = 0; r < layout.num_replicas(); ++r) {
          EXPECT_TRUE(std::ranges::binary_search(units_of(layout, set.ranks[r]), unit));
        }
      }
    }
    EXPECT_EQ(next, layout.num_units());

    // Sets of the same ranks share a group. Every group is in one round, and no rank is twice in a round.
    const std::vector<int> groups = owner_groups(sets);
    std::set<std::vector<int>> different;
    for (size_t s = 0; s < sets.size(); ++s) {
      different.insert(sets[s].ranks);
      EXPECT_EQ(sets[groups[s]].ranks, sets[s].ranks);
      EXPECT_EQ(groups[groups[s]], groups[s]);
    }
    size_t placed = 0;
    for (const std::vector<int>& members : disjoint_rounds(sets)) {
      std::set<int> ranks;
      for (const int set : members) {
        ++placed;
        EXPECT_EQ(groups[set], set);
        for (const int rank : sets[set].ranks) EXPECT_TRUE(ranks.insert(rank).second);
      }
    }
    EXPECT_EQ(placed, different.size());

    // The members of a group come to the buckets of all its sets in one order.
    const auto bytes = [](int unit) { return 50 + 30 * (unit % 3); };
    for (int group = 0; group < static_cast<int>(sets.size()); ++group) {
      std::set<std::vector<int>> orders;
      for (const int rank : sets[group].ranks) {
        std::vector<int> order;
        for (const Bucket& bucket : plan_buckets(sets, units_of(layout, rank), bytes, 100)) {
          if (groups[bucket.owner_set] == group) order.push_back(bucket.units.first);
        }
        EXPECT_TRUE(std::ranges::is_sorted(order, std::greater()));
        orders.insert(order);
      }
      EXPECT_EQ(orders.size(), 1U);
    }

    // All members of a set plan the same buckets for it.
    const size_t limit = std::uniform_int_distribution<size_t>(1, 400)(random);
    for (int s = 0; s < static_cast<int>(sets.size()); ++s) {
      std::set<std::vector<int>> plans;
      for (const int rank : sets[s].ranks) {
        std::vector<int> plan;
        for (const Bucket& bucket : plan_buckets(
                 sets, units_of(layout, rank), [](int unit) { return 50 + 30 * (unit % 3); }, limit)) {
          if (bucket.owner_set == s) plan.insert(plan.end(), {bucket.units.first, bucket.units.end});
        }
        plans.insert(plan);
      }
      EXPECT_EQ(plans.size(), 1U);
    }
  }
}

TEST(OwnershipTest, TensorsAreSharedOutByTheirSizes) {
  EXPECT_EQ(share_out(std::vector<size_t>{5, 5, 5, 5}, 2), (std::vector<int>{0, 1, 0, 1}));
  // The large one alone, the others together.
  EXPECT_EQ(share_out(std::vector<size_t>{1, 2, 10, 3, 4}, 2), (std::vector<int>{1, 1, 0, 1, 1}));
  EXPECT_EQ(share_out(std::vector<size_t>{7, 7}, 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(share_out({}, 3), std::vector<int>());
}

}  // namespace
}  // namespace hdt::training
