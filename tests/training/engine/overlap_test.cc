// overlap_test.cc: buckets start while backward is still running, once a step, each unit's gradient once.
#include <gtest/gtest.h>

#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

// Notes how many sums had been started when each unit's backward of the last micro-batch was done.
void expect_sums_during_backward(bool sharded) {
  const FakeShape shape;
  const Layout layout(4, {{{4}, 1, 3}, {{4}, 1, 1}}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  run_ranks(2, [&](int rank) {
    FakeCompute compute(shape, layout.units_of(layout.position_of(rank)));
    const auto messenger = world.messenger(rank);
    const std::vector<OwnerSet> sets = owner_sets(layout);
    Result<UnitMemory> memory = UnitMemory::create(compute, *messenger);
    ASSERT_TRUE(memory.is_ok());
    // A bucket a unit.
    const std::vector<BucketShards> buckets = plan_shards(sets, memory.value(), rank, 1, {sharded, {}});
    GradientReducer reducer(buckets, sets, memory.value(), *messenger);
    ASSERT_EQ(reducer.buckets(), layout.num_units());
    Result<PipelineRunner> runner = PipelineRunner::create(
        layout, layout.position_of(rank), ScheduleKind::kOneForwardOneBackward, compute, *messenger);
    ASSERT_TRUE(runner.is_ok());
    std::vector<int> done;
    const Result<LossSum> loss = runner.value().run(
        [&](int64_t index, std::span<int64_t> tokens) { synthetic_sample(shape.vocab, 0, index, tokens); },
        [&](int unit) {
          const int before = world.sums_started();
          reducer.unit_done(unit);
          EXPECT_GT(world.sums_started(), before);
          done.push_back(unit);
        });
    ASSERT_TRUE(loss.is_ok()) << loss.status().message();
    EXPECT_EQ(done, (std::vector<int>{5, 4, 3, 2, 1, 0}));  // only in the last backward, last unit first
    EXPECT_TRUE(reducer.finish().is_ok());
  });
  EXPECT_EQ(world.sums_started(), 2 * layout.num_units());
}

TEST(OverlapTest, BucketsStartDuringBackward) { expect_sums_during_backward(false); }
TEST(OverlapTest, ShardedBucketsStartDuringBackwardToo) { expect_sums_during_backward(true); }

TEST(OverlapTest, OneReplicaReducesNothing) {
  const RunResult run =
      train(Layout(4, {{{2, 2}, 1, 3}}, RankOrder::kTpPpDp), FakeShape(), 2, TrainerOptions());
  EXPECT_EQ(run.sums_started, 0);
}

TEST(OverlapTest, AUnitLeftOutIsAnError) {
  const Layout layout(4, {{{4}, 1, 1}}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  FakeCompute compute(FakeShape(), layout.units_of({0, 0}));
  const auto messenger = world.messenger(0);
  const std::vector<OwnerSet> sets = owner_sets(layout);
  Result<UnitMemory> memory = UnitMemory::create(compute, *messenger);
  ASSERT_TRUE(memory.is_ok());
  const std::vector<BucketShards> buckets = plan_shards(sets, memory.value(), 0, 1, {});
  GradientReducer reducer(buckets, sets, memory.value(), *messenger);
  reducer.unit_done(5);
  EXPECT_FALSE(reducer.finish().is_ok());
}

}  // namespace
}  // namespace hdt::training::testing
