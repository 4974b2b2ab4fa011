// shards_test.cc: bounds of shards, the shards of all ranks, and options that are refused.
#include "training/engine/shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

TEST(ShardBounds, FollowTheWeights) {
  EXPECT_EQ(shard_bounds(640, std::vector<double>{1, 1}), (std::vector<size_t>{0, 320, 640}));
  EXPECT_EQ(shard_bounds(960, std::vector<double>{3, 2, 1}), (std::vector<size_t>{0, 480, 800, 960}));
  EXPECT_EQ(shard_bounds(100, std::vector<double>{0, 5, 0}), (std::vector<size_t>{0, 0, 100, 100}));
  // Fewer than a cache line: one has them all.
  EXPECT_EQ(shard_bounds(7, std::vector<double>{1, 1, 1}), (std::vector<size_t>{0, 0, 0, 7}));
  EXPECT_EQ(shard_bounds(0, std::vector<double>{1, 2}), (std::vector<size_t>{0, 0, 0}));
  // Bytes of memory and fractions of it are the same weights.
  EXPECT_EQ(shard_bounds(1000, std::vector<double>{80e300, 24e300}),
            shard_bounds(1000, std::vector<double>{80, 24}));
}

TEST(ShardBounds, CoverEverythingOnceInProportion) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const auto between = [&](size_t least, size_t most) {
    return std::uniform_int_distribution<size_t>(least, most)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    const size_t elements = between(0, round % 2 == 0 ? 300 : 1'000'000'000);
    std::vector<double> weights(between(1, 9));
    const double scale = std::pow(10.0, static_cast<double>(between(0, 60)) - 30);
    for (double& weight : weights)
      weight = between(0, 3) == 0 ? 0 : scale * static_cast<double>(between(1, 1000));
    weights[between(0, weights.size() - 1)] = scale;  // one at least
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);

    const std::vector<size_t> bounds = shard_bounds(elements, weights);
    ASSERT_EQ(bounds.size(), weights.size() + 1);
    EXPECT_EQ(bounds.front(), 0U);
    EXPECT_EQ(bounds.back(), elements);
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_LE(bounds[i], bounds[i + 1]);
      EXPECT_TRUE(bounds[i] % kShardAlignment == 0 || bounds[i] == elements) << bounds[i];
      const size_t count = bounds[i + 1] - bounds[i];
      EXPECT_TRUE(weights[i] > 0 || count == 0) << count;
      EXPECT_NEAR(static_cast<double>(count), static_cast<double>(elements) * (weights[i] / sum),
                  kShardAlignment + 0.01);
    }
  }
}

// The shards of the owners of a bucket, as each of them plans its own.
TEST(PlanShards, OwnersPlanOneCut) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const NamedLayout& named : random_layouts(50, random)) {
    SCOPED_TRACE(named.name);
    const Layout& layout = named.layout;
    const std::vector<OwnerSet> sets = owner_sets(layout);
    const ShardOptions options = random_shards(layout, random);
    const size_t limit = std::uniform_int_distribution<size_t>(1, 500)(random);
    ThreadWorld world(layout);
    // By first unit: how many elements of the bucket each rank updates, and the counts as all know them.
    std::map<int, std::vector<BucketShards>> cut;
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      const FakeChunks chunks(FakeShape(), layout, rank);
      const auto messenger = world.messenger(rank);
      const Result<UnitMemory> memory = UnitMemory::create(chunks.computes(), *messenger);
      ASSERT_TRUE(memory.is_ok());
      for (const BucketShards& shards : plan_shards(sets, memory.value(), rank, limit, options)) {
        const OwnerSet& set = sets[shards.bucket.owner_set];
        if (set.ranks.size() == 1) {
          EXPECT_TRUE(shards.counts.empty());
          EXPECT_EQ(shards.count, shards.elements);
          continue;
        }
        const auto member = std::ranges::find(set.ranks, rank) - set.ranks.begin();
        EXPECT_EQ(shards.count, shards.counts[member]);
        EXPECT_EQ(shards.first,
                  std::accumulate(shards.counts.begin(), shards.counts.begin() + member, size_t{0}));
        EXPECT_EQ(std::accumulate(shards.counts.begin(), shards.counts.end(), size_t{0}), shards.elements);
        EXPECT_TRUE(options.weights[rank] > 0 || shards.count == 0) << shards.count;
        cut[shards.bucket.units.first].push_back(shards);
      }
    }
    for (const auto& [unit, members] : cut) {
      ASSERT_EQ(members.size(), static_cast<size_t>(layout.num_replicas()));
      for (const BucketShards& shards : members) EXPECT_EQ(shards.counts, members.front().counts);
    }
  }
}

// A rank that keeps a part of the state has memory for that part.
TEST(PlanShards, MomentsAreThereForTheOwnShardsOnly) {
  const Layout layout(4, {{{4}, 1, 1}, {{4}, 1, 1}}, RankOrder::kTpPpDp);
  FakeCompute whole(FakeShape(), {0, 6});
  size_t elements = 0;
  for (int unit = 0; unit < 6; ++unit) elements += elements_of(whole.tensors(unit));
  const auto kept = [&](const ShardOptions& shards) {
    TrainerOptions options;
    options.shards = shards;
    const std::vector<size_t> found = train(layout, FakeShape(), 1, options).state_elements;
    return std::vector<double>{static_cast<double>(found[0]), static_cast<double>(found[1])};
  };
  const auto all = static_cast<double>(elements);
  const double padding = 6 * kShardAlignment;
  EXPECT_NEAR(kept({false, {}})[0], all, padding);
  EXPECT_NEAR(kept({false, {}})[1], all, padding);
  EXPECT_NEAR(kept({true, {}})[0], all / 2, padding);
  EXPECT_NEAR(kept({true, {}})[1], all / 2, padding);
  EXPECT_NEAR(kept({true, {3, 1}})[0], all * 3 / 4, padding);
  EXPECT_NEAR(kept({true, {3, 1}})[1], all / 4, padding);
  EXPECT_EQ(kept({true, {0, 1}})[0], 0);
  EXPECT_NEAR(kept({true, {0, 1}})[1], all, padding);
}

TEST(ShardOptions, WhatDoesNotFitTheLayoutIsRefused) {
  const Layout layout(4, {{{3, 1}}, {{2, 2}}}, RankOrder::kTpPpDp);
  const auto refusal = [&](const ShardOptions& options) {
    const Status status = check_shard_options(layout, options);
    EXPECT_TRUE(status.is_ok() || status.code() == Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(refusal({true, {}}), "");
  EXPECT_EQ(refusal({true, {1, 0, 0.5, 2}}), "");
  EXPECT_EQ(refusal({true, {1, 2}}), "2 weights of shards: expected one for each of the 4 ranks");
  EXPECT_EQ(refusal({true, {1, 2, -1, 2}}),
            "weight -1 of the shard of rank 2: expected a finite number of at least 0");
  for (const double none : {std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_NE(refusal({true, {none, 2, 1, 2}}).find("of the shard of rank 0: expected a finite"),
              std::string::npos);
  // The owners of the third layer are the first stage of one replica and the second of the other.
  EXPECT_EQ(
      refusal({true, {0, 1, 1, 0}}),
      "weights of shards: 0 for all owners (ranks 0, 3) of units 3 to 3: nobody would keep their optimizer "
      "states");
  EXPECT_EQ(refusal({false, {1, 1, 1, 1}}),
            "weights of shards: expected sharded optimizer states, found none");
}

// An update of the caller's writes its rank's number into its shards. All ranks then have the numbers of all.
TEST(Shards, AnUpdateOfTheCallersGetsItsShardsAndTheOthersAreFetched) {
  const Layout layout(4, {{{4}}, {{4}}}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  std::vector<std::vector<float>> parameters(2);
  run_ranks(2, [&](int rank) {
    FakeCompute compute(FakeShape(), layout.units_of({rank, 0}));
    const auto messenger = world.messenger(rank);
    TrainerOptions options;
    options.shards = {true, {3, 1}};
    options.bucket_elements = 100;
    UnitMemory* memory = nullptr;
    size_t updated = 0;
    options.update = [&](double, std::span<const BucketShards> buckets) {
      for (const BucketShards& shards : buckets) {
        const TypedSpan all = memory->parameters(shards.bucket.units);
        std::ranges::fill(all.subspan(shards.first, shards.count).as<float>(), static_cast<float>(rank + 1));
        updated += shards.count;
      }
    };
    const auto trainer = make_trainer(layout, FakeShape().vocab, compute, *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    memory = &trainer.value()->memory();
    ASSERT_TRUE(trainer.value()->step(0).is_ok());
    ASSERT_TRUE(trainer.value()->settle().is_ok());
    for (const int unit : memory->units()) {
      const std::span<float> unit_parameters = memory->parameters(unit).as<float>();
      parameters[static_cast<size_t>(rank)].insert(parameters[static_cast<size_t>(rank)].end(),
                                                   unit_parameters.begin(), unit_parameters.end());
    }
    EXPECT_GT(updated, 0U);
  });
  EXPECT_EQ(parameters[0], parameters[1]);
  const auto of_rank_0 = std::ranges::count(parameters[0], 1.F);
  const auto of_rank_1 = std::ranges::count(parameters[0], 2.F);
  EXPECT_EQ(static_cast<size_t>(of_rank_0 + of_rank_1), parameters[0].size());
  EXPECT_GT(of_rank_0, of_rank_1);
  EXPECT_GT(of_rank_1, 0);
}

}  // namespace
}  // namespace hdt::training::testing
