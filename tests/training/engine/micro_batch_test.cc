// micro_batch_test.cc: every stage learns the numbers of the step and of the samples that it computes, also
// one that reads no tokens.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/training/engine/training_run.h"
#include "training/engine/evaluation.h"

namespace hdt::training::testing {
namespace {

using StepAndSample = std::pair<int64_t, int64_t>;

// Replica 0 takes samples 0 to 5 in micro-batches of 2, replica 1 samples 6 to 8 in micro-batches of 1.
TEST(MicroBatchTest, EveryStageLearnsStepAndSample) {
  const FakeShape shape;
  const Layout layout(4, {{{1, 2, 1}, 2, 3}, {{4}, 1, 3}}, RankOrder::kTpPpDp);
  for (const ScheduleKind schedule : kScheduleKinds) {
    SCOPED_TRACE(schedule_name(schedule));
    ThreadWorld world(layout);
    run_ranks(layout.world_size(), [&](int rank) {
      const Position position = layout.position_of(rank);
      FakeCompute compute(shape, layout.units_of(position));
      const auto messenger = world.messenger(rank);
      TrainerOptions options;
      options.schedule = schedule;
      auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, options);
      ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
      // The numbers are those of the run, and not counted from its start: a run that goes on has the same.
      for (const int64_t step : {41, 42}) ASSERT_TRUE(trainer.value()->step(step).is_ok());
      ASSERT_TRUE(trainer.value()->settle().is_ok());
      const std::vector<StepAndSample> expected =
          position.replica == 0
              ? std::vector<StepAndSample>{{41, 0}, {41, 2}, {41, 4}, {42, 0}, {42, 2}, {42, 4}}
              : std::vector<StepAndSample>{{41, 6}, {41, 7}, {41, 8}, {42, 6}, {42, 7}, {42, 8}};
      EXPECT_EQ(compute.computed(), expected) << "rank " << rank;
    });
  }
}

// A stage in the middle gets the tokens of its samples if it reads them, in training and in evaluation.
TEST(MicroBatchTest, AStageInTheMiddleGetsTokensIfItReadsThem) {
  const Layout layout(4, {{{1, 2, 1}, 2, 3}}, RankOrder::kTpPpDp);
  for (const bool reads : {false, true}) {
    FakeShape shape;
    shape.reads_tokens = reads;
    ThreadWorld world(layout);
    run_ranks(layout.world_size(), [&](int rank) {
      FakeCompute compute(shape, layout.units_of(layout.position_of(rank)));
      const auto messenger = world.messenger(rank);
      auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, {});
      ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
      ASSERT_TRUE(trainer.value()->step(0).is_ok());
      auto evaluator = Evaluator::create(layout, compute, *messenger);
      ASSERT_TRUE(evaluator.is_ok()) << evaluator.status().message();
      const auto read = [&](int64_t batch, int64_t index, std::span<int64_t> tokens) {
        synthetic_sample(shape.vocab, batch, index, tokens);
      };
      ASSERT_TRUE(evaluator.value()->evaluate(1, read).is_ok());
      const size_t tokens = reads || rank != 1 ? 2 * static_cast<size_t>(shape.sequence_length + 1) : 0;
      EXPECT_EQ(compute.tokens_given(), std::vector<size_t>(6, tokens)) << "rank " << rank;
    });
  }
}

}  // namespace
}  // namespace hdt::training::testing
