// overlap_test.cc: buckets start while backward is still running, once a step, each unit's gradient once;
// messages of both neighbours are received while a stage computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/training/engine/training_run.h"
#include "tests/training/engine/wrapped_compute.h"
#include "tests/training/engine/wrapped_messenger.h"

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
        0, [&](int64_t index, std::span<int64_t> tokens) { synthetic_sample(shape.vocab, 0, index, tokens); },
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

// Counts the receives under way of each neighbour.
class CountingMessenger final : public WrappedMessenger {
 public:
  using WrappedMessenger::WrappedMessenger;

  Result<Pending> receive_from_stage(int stage, TypedSpan values) override {
    Result<Pending> posted = WrappedMessenger::receive_from_stage(stage, values);
    if (!posted.is_ok()) return posted;
    ++under_way_[stage];
    return Pending(std::make_unique<Receive>(posted.take(), under_way_[stage]));
  }
  int under_way(int stage) { return under_way_[stage]; }

 private:
  class Receive final : public Operation {
   public:
    Receive(Pending operation, int& under_way) : operation_(std::move(operation)), under_way_(under_way) {}
    Status wait() override {
      --under_way_;
      return operation_->wait();
    }

   private:
    Pending operation_;
    int& under_way_;
  };

  std::map<int, int> under_way_;
};

// A stage with a neighbour on each side. While it computes in the steady state, it receives from both.
class Watched final : public WrappedCompute {
 public:
  Watched(FakeCompute& compute, CountingMessenger& messenger)
      : WrappedCompute(compute), messenger_(messenger) {}

  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override {
    from_both.push_back(std::min(messenger_.under_way(0), messenger_.under_way(2)));
    WrappedCompute::backward(slot, output_gradient, input_gradient, unit_done);
  }

  std::vector<int> from_both;  // in each backward: receives of the neighbour that has fewer

 private:
  CountingMessenger& messenger_;
};

TEST(OverlapTest, AStageReceivesFromBothNeighboursWhileItComputes) {
  const FakeShape shape;
  const Layout layout(4, {{{1, 2, 1}, 1, 16}}, RankOrder::kTpPpDp);
  for (const ScheduleKind schedule : {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kEager}) {
    SCOPED_TRACE(schedule_name(schedule));
    ThreadWorld world(layout);
    run_ranks(layout.world_size(), [&](int rank) {
      FakeCompute fake(shape, layout.units_of(layout.position_of(rank)));
      CountingMessenger messenger(world.messenger(rank));
      Watched compute(fake, messenger);
      TrainerOptions options;
      options.schedule = schedule;
      auto trainer = make_trainer(layout, shape.vocab, compute, messenger, options);
      ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
      ASSERT_TRUE(trainer.value()->step(0).is_ok());
      if (rank != 1) return;
      ASSERT_EQ(compute.from_both.size(), 16U);
      // The last activations have come when the last micro-batches are run backward.
      for (int i = 0; i < 8; ++i) EXPECT_GE(compute.from_both[i], 1) << "backward " << i;
      EXPECT_EQ(compute.from_both.back(), 0);
    });
  }
}

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
