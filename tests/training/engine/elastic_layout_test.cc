// elastic_layout_test.cc: what a layout becomes when ranks are lost: always a whole one, in proportion to
// speed.
#include "training/engine/elastic_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <random>

#include "tests/training/engine/layout_table.h"
#include "training/engine/ownership.h"
#include "training/engine/schedules.h"

namespace hdt::training::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<RankAbility> all_alike(const Layout& layout, std::initializer_list<int> lost) {
  std::vector<RankAbility> ranks(static_cast<size_t>(layout.world_size()));
  for (const int rank : lost) ranks[static_cast<size_t>(rank)].lost = true;
  return ranks;
}

// Replica 0 has 3 + 1 layers and 4 micro-batches of 2, replica 1 has 2 + 2 and 2 of them.
Layout unequal_pair() { return Layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp); }

TEST(ElasticLayoutTest, TheOtherStageTakesAllLayersOfItsReplica) {
  const auto made = elastic_layout(unequal_pair(), all_alike(unequal_pair(), {1}));
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  const Layout& layout = made.value().layout;
  EXPECT_THAT(made.value().new_ranks, ElementsAre(0, -1, 1, 2));
  EXPECT_THAT(layout.replica(0).stage_layers, ElementsAre(4));
  EXPECT_THAT(layout.replica(1).stage_layers, ElementsAre(2, 2));
  // Half as many ranks, half as many samples.
  EXPECT_EQ(layout.replica(0).num_micro_batches, 2);
  EXPECT_EQ(layout.replica(1).num_micro_batches, 4);
  EXPECT_EQ(layout.replica(0).micro_batch_size, 2);
  EXPECT_THAT(made.value().notes, IsEmpty());
}

TEST(ElasticLayoutTest, AReplicaThatLostAllItsRanksGoes) {
  const auto made = elastic_layout(unequal_pair(), all_alike(unequal_pair(), {0, 1}));
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  ASSERT_EQ(made.value().layout.num_replicas(), 1);
  EXPECT_THAT(made.value().layout.replica(0).stage_layers, ElementsAre(2, 2));
  EXPECT_EQ(made.value().layout.replica(0).num_micro_batches, 6);
  EXPECT_THAT(made.value().new_ranks, ElementsAre(-1, -1, 0, 1));
}

TEST(ElasticLayoutTest, LayersAndSamplesFollowTheSpeed) {
  const Layout old(12, {{{4, 4, 4}, 1, 6}, {{6, 6}, 1, 6}}, RankOrder::kTpPpDp);
  std::vector<RankAbility> ranks = all_alike(old, {1});
  ranks[0].speed = 3;
  const auto made = elastic_layout(old, ranks);
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  EXPECT_THAT(made.value().layout.replica(0).stage_layers, ElementsAre(9, 3));
  // The slowest stage has 3 layers at speed 1 there, and 6 here.
  EXPECT_EQ(made.value().layout.replica(0).num_micro_batches, 8);
  EXPECT_EQ(made.value().layout.replica(1).num_micro_batches, 4);
}

TEST(ElasticLayoutTest, TheLowestRankIsOfReplica0) {
  const Layout old(4, {{{2, 2}, 1, 3}, {{2, 2}, 1, 3}}, RankOrder::kTpDpPp);
  const auto made = elastic_layout(old, all_alike(old, {0}));
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  const Layout& layout = made.value().layout;
  // Rank 1 is stage 0 of replica 1, which is whole.
  EXPECT_THAT(made.value().new_ranks, ElementsAre(-1, 0, 1, 2));
  EXPECT_EQ(layout.position_of(0), (Position{0, 0, 0}));
  EXPECT_THAT(layout.replica(0).stage_layers, ElementsAre(2, 2));
  EXPECT_EQ(layout.position_of(1), (Position{1, 0, 0}));
  EXPECT_EQ(layout.position_of(2), (Position{0, 1, 0}));
}

TEST(ElasticLayoutTest, AStageWithoutLayersStaysWithoutThem) {
  const Layout old(4, {{{0, 2, 2, 0}, 1, 4}}, RankOrder::kTpPpDp);
  const auto one = elastic_layout(old, all_alike(old, {1}));
  ASSERT_TRUE(one.is_ok()) << one.status().to_string();
  EXPECT_THAT(one.value().layout.replica(0).stage_layers, ElementsAre(0, 4, 0));
  // Now there is nobody else.
  const auto both = elastic_layout(old, all_alike(old, {1, 2}));
  ASSERT_TRUE(both.is_ok()) << both.status().to_string();
  EXPECT_THAT(both.value().layout.replica(0).stage_layers, ElementsAre(0, 4));
}

TEST(ElasticLayoutTest, MemoryLimitsAStage) {
  const Layout old(9, {{{3, 3, 3}, 1, 2}}, RankOrder::kTpPpDp);
  std::vector<RankAbility> ranks = all_alike(old, {2});
  ranks[1].most_layers = 2;
  const auto made = elastic_layout(old, ranks);
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  EXPECT_THAT(made.value().layout.replica(0).stage_layers, ElementsAre(7, 2));
  ranks[0].most_layers = 4;
  const auto refused = elastic_layout(old, ranks);
  EXPECT_EQ(refused.status().code(), Code::kSystem);
  EXPECT_THAT(
      refused.status().message(),
      HasSubstr("replica 0: ranks 0, 1 are left of it, whose memory holds 6 of the 9 layers: 3 too few"));
  ranks[0].most_layers = 0;
  EXPECT_THAT(elastic_layout(old, ranks).status().message(),
              HasSubstr("the memory of rank 0 holds none of the 9 layers"));
}

TEST(ElasticLayoutTest, MicroBatchesChangeTheirSizeOnlyWhereTheBatchNeedsIt) {
  // 5 + 7 samples; 5 alone do not make 12.
  const Layout old(2, {{{2}, 5, 1}, {{2}, 7, 1}}, RankOrder::kTpPpDp);
  const auto made = elastic_layout(old, all_alike(old, {1}));
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  EXPECT_EQ(made.value().layout.replica(0).micro_batch_size, 4);
  EXPECT_EQ(made.value().layout.replica(0).num_micro_batches, 3);
  EXPECT_THAT(made.value().notes, ElementsAre(HasSubstr("micro-batches of 4 in place of 5")));
}

TEST(ElasticLayoutTest, ChunksStayWhereLayersAndMicroBatchesSuffice) {
  const Layout old(12, {{{2, 2, 2, 2, 2, 2}, 1, 6, 2}}, RankOrder::kTpPpDp);
  const auto kept = elastic_layout(old, all_alike(old, {0}));
  ASSERT_TRUE(kept.is_ok()) << kept.status().to_string();
  EXPECT_EQ(kept.value().layout.replica(0).chunks, 2);
  EXPECT_THAT(kept.value().layout.replica(0).stage_layers, ElementsAre(3, 3, 3, 3));
  // 9 micro-batches are no multiple of 2 stages.
  const Layout odd(12, {{{2, 2, 2, 2, 2, 2}, 1, 9, 2}}, RankOrder::kTpPpDp);
  const auto given_up = elastic_layout(odd, all_alike(odd, {0}));
  ASSERT_TRUE(given_up.is_ok()) << given_up.status().to_string();
  EXPECT_EQ(given_up.value().layout.replica(0).chunks, 1);
  EXPECT_THAT(given_up.value().layout.replica(0).stage_layers, ElementsAre(6, 6));
  EXPECT_THAT(given_up.value().notes, ElementsAre(HasSubstr("one chunk on each stage in place of 2")));
}

TEST(ElasticLayoutTest, RefusesWhatIsNoRunAnyMore) {
  const Layout old = unequal_pair();
  EXPECT_THAT(elastic_layout(old, all_alike(old, {0, 1, 2, 3})).status().message(),
              HasSubstr("all ranks are lost"));
  EXPECT_THAT(elastic_layout(old, std::vector<RankAbility>(3)).status().message(),
              HasSubstr("3 ranks are described, expected the 4"));
  std::vector<RankAbility> ranks = all_alike(old, {1});
  ranks[2].speed = 0;
  EXPECT_THAT(elastic_layout(old, ranks).status().message(), HasSubstr("rank 2: speed 0"));
}

std::string text_of(const Layout& layout) {
  std::string text;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    const Replica& replica = layout.replica(i);
    text += fmt::format("[{}] / {}, {} x {}; ", fmt::join(replica.stage_layers, " "), replica.chunks,
                        replica.num_micro_batches, replica.micro_batch_size);
  }
  return text;
}

// Replicas of all kinds, some with chunks, some with stages without layers.
Layout random_layout(std::mt19937& random) {
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  const int layers = pick(1, 24);
  std::vector<Replica> replicas(static_cast<size_t>(pick(1, 5)));
  for (Replica& replica : replicas) {
    const int stages = pick(1, std::min(layers, 6));
    replica.chunks = stages > 1 && layers >= 2 * stages && pick(0, 2) == 0 ? 2 : 1;
    replica.stage_layers.assign(static_cast<size_t>(stages * replica.chunks), 1);
    for (int left = layers - replica.virtual_stages(); left > 0; --left)
      ++replica.stage_layers[static_cast<size_t>(pick(0, replica.virtual_stages() - 1))];
    if (replica.chunks == 1 && stages > 1 && pick(0, 3) == 0) {
      replica.stage_layers[1] += replica.stage_layers[0];
      replica.stage_layers[0] = 0;
    }
    replica.micro_batch_size = pick(1, 5);
    replica.num_micro_batches = replica.chunks > 1 ? stages * pick(1, 3) : pick(1, 7);
  }
  return Layout(layers, replicas, pick(0, 1) == 0 ? RankOrder::kTpPpDp : RankOrder::kTpDpPp);
}

// All that the engine relies on.
void expect_whole(const Layout& old, std::span<const RankAbility> ranks, const ElasticLayout& made) {
  const Layout& layout = made.layout;
  EXPECT_EQ(layout.global_batch_size(), old.global_batch_size());
  int left = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    EXPECT_EQ(made.new_ranks[rank], ranks[rank].lost ? -1 : left++);
  EXPECT_EQ(layout.world_size(), left);
  EXPECT_EQ(layout.position_of(0).replica, 0);
  for (int index = 0; index < layout.num_replicas(); ++index) {
    const Replica& replica = layout.replica(index);
    EXPECT_EQ(std::accumulate(replica.stage_layers.begin(), replica.stage_layers.end(), 0), old.num_layers());
    EXPECT_GE(replica.num_micro_batches, 1);
    EXPECT_GE(replica.micro_batch_size, 1);
    EXPECT_TRUE(
        check_chunks(ScheduleKind::kInterleaved, replica.stages(), replica.num_micro_batches, replica.chunks)
            .is_ok());
    for (int part = 1; part + 1 < replica.virtual_stages(); ++part)
      EXPECT_GE(replica.stage_layers[static_cast<size_t>(part)], 1);
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].lost) continue;
    const int number = made.new_ranks[rank];
    EXPECT_EQ(layout.rank_of(layout.position_of(number)), number);
    int units = 0;
    int layers = 0;
    for (const UnitRange& range : layout.ranges_of(number)) {
      units += range.size();
      layers += range.size() - (range.contains(0) ? 1 : 0) - (range.contains(layout.head_unit()) ? 1 : 0);
    }
    EXPECT_GE(units, 1) << "rank " << rank << " is idle";
    EXPECT_LE(layers, ranks[rank].most_layers);
  }
  // Stages are in the order in which they were, and owners of every unit one for each replica.
  for (int index = 0; index < layout.num_replicas(); ++index) {
    int before = -1;
    for (int stage = 0; stage < layout.replica(index).stages(); ++stage) {
      const int rank = layout.rank_of({index, stage, 0});
      const auto old_rank = std::ranges::find(made.new_ranks, rank) - made.new_ranks.begin();
      const int old_stage = old.position_of(static_cast<int>(old_rank)).stage;
      EXPECT_GT(old_stage, before);
      before = old_stage;
    }
  }
  for (const OwnerSet& set : owner_sets(layout))
    EXPECT_EQ(set.ranks.size(), static_cast<size_t>(layout.num_replicas()));
}

// Loss after loss, until one rank is left.
TEST(ElasticLayoutTest, RandomLayoutsStayWholeLossAfterLoss) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300 && !::testing::Test::HasFailure(); ++round) {
    Layout layout = random_layout(random);
    while (layout.world_size() > 1) {
      std::vector<RankAbility> ranks(static_cast<size_t>(layout.world_size()));
      for (RankAbility& rank : ranks) {
        rank.lost = random() % 4 == 0;
        rank.speed = std::uniform_real_distribution(0.1, 10.0)(random);
      }
      ranks[random() % ranks.size()].lost = true;
      ranks[random() % ranks.size()].lost = false;
      if (std::ranges::none_of(ranks, &RankAbility::lost)) continue;
      SCOPED_TRACE(text_of(layout));
      const auto made = elastic_layout(layout, ranks);
      ASSERT_TRUE(made.is_ok()) << made.status().to_string();
      SCOPED_TRACE(text_of(made.value().layout));
      expect_whole(layout, ranks, made.value());
      const auto again = elastic_layout(layout, ranks);
      EXPECT_EQ(text_of(again.value().layout), text_of(made.value().layout));
      layout = made.value().layout;
    }
  }
}

TEST(ElasticLayoutTest, RandomMemoryIsRespectedOrRefused) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  int fitted = 0;
  int refused = 0;
  for (int round = 0; round < 500 && !::testing::Test::HasFailure(); ++round) {
    const Layout layout = random_layout(random);
    if (layout.world_size() == 1) continue;
    std::vector<RankAbility> ranks(static_cast<size_t>(layout.world_size()));
    for (RankAbility& rank : ranks) rank.most_layers = static_cast<int>(random() % (layout.num_layers() + 1));
    ranks[random() % ranks.size()].lost = true;
    SCOPED_TRACE(text_of(layout));
    const auto made = elastic_layout(layout, ranks);
    if (made.is_ok()) {
      expect_whole(layout, ranks, made.value());
      ++fitted;
    } else {
      EXPECT_EQ(made.status().code(), Code::kSystem);
      EXPECT_THAT(made.status().message(), HasSubstr("memory"));
      ++refused;
    }
  }
  EXPECT_GT(fitted, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace hdt::training::testing
