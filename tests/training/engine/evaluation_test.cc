// evaluation_test.cc: the loss on other data is the same on every layout, and measuring it changes nothing.
#include "training/engine/evaluation.h"

#include <gtest/gtest.h>

#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kEvaluatedSteps = 6;
constexpr int64_t kBatches = 3;
constexpr int64_t kOtherData = 1'000'000;  // steps that training does not come to

TrainerOptions learning() {
  TrainerOptions result;
  result.seed = 3;
  result.schedule = ScheduleKind::kInterleaved;  // 1F1B where a stage has one chunk
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 1, .total_steps = kEvaluatedSteps};
  return result;
}

struct Evaluated {
  std::vector<double> training;              // losses by step, as rank 0 saw them
  std::vector<EvaluationResult> validation;  // after each step
};

// Trains, and evaluates after each step. All ranks must see the same.
Evaluated run(const Layout& layout, bool evaluates = true) {
  const FakeShape shape;
  ThreadWorld world(layout);
  std::vector<Evaluated> results(layout.world_size());
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(shape, layout, rank);
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab, chunks.computes(), *messenger, learning());
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    auto evaluator = Evaluator::create(layout, chunks.computes(), *messenger);
    ASSERT_TRUE(evaluator.is_ok()) << evaluator.status().message();
    for (int64_t step = 0; step < kEvaluatedSteps; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      results[rank].training.push_back(done.value().loss);
      if (!evaluates) continue;
      const auto evaluated =
          evaluator.value()->evaluate(kBatches, [&](int64_t batch, int64_t index, std::span<int64_t> tokens) {
            synthetic_sample(shape.vocab, kOtherData + batch, index, tokens);
          });
      ASSERT_TRUE(evaluated.is_ok()) << evaluated.status().message();
      results[rank].validation.push_back(evaluated.value());
    }
  });
  for (const Evaluated& other : results) {
    EXPECT_EQ(other.training, results[0].training);
    for (size_t i = 0; i < other.validation.size(); ++i)
      EXPECT_EQ(other.validation[i].loss, results[0].validation[i].loss);
  }
  return results[0];
}

TEST(EvaluationTest, IsTheSameOnEveryLayout) {
  const Evaluated one = run(Layout(4, {{{4}, 12, 1}}, RankOrder::kTpDpPp));
  ASSERT_EQ(one.validation.size(), static_cast<size_t>(kEvaluatedSteps));
  EXPECT_LT(one.validation.back().loss, one.validation.front().loss);  // it has learned
  for (const Layout& layout : {Layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp),
                               Layout(4, {{{1, 1, 1, 1}, 1, 7}, {{4}, 5, 1}}, RankOrder::kTpDpPp),
                               Layout(4, {{{1, 2, 1}, 6, 2}}, RankOrder::kTpPpDp),
                               // Two chunks on each stage, alone and beside one.
                               Layout(4, {{{1, 1, 1, 1}, 2, 6, 2}}, RankOrder::kTpPpDp),
                               Layout(4, {{{1, 1, 1, 1}, 2, 4, 2}, {{3, 1}, 2, 2}}, RankOrder::kTpPpDp)}) {
    const Evaluated split = run(layout);
    ASSERT_EQ(split.validation.size(), one.validation.size());
    for (size_t i = 0; i < one.validation.size(); ++i) {
      EXPECT_NEAR(split.validation[i].loss, one.validation[i].loss, 1e-5 * one.validation[i].loss) << i;
      EXPECT_EQ(split.validation[i].tokens, kBatches * 12 * FakeShape().sequence_length);
    }
  }
}

TEST(EvaluationTest, ChangesNothingInTraining) {
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  EXPECT_EQ(run(layout).training, run(layout, false).training);
}

// The loss of the start values is known: that of each token is far from 0, and the mean is over all tokens.
TEST(EvaluationTest, IsTheLossThatTrainingWouldHave) {
  const FakeShape shape;
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(shape, layout, rank);
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab, chunks.computes(), *messenger, learning());
    auto evaluator = Evaluator::create(layout, chunks.computes(), *messenger);
    ASSERT_TRUE(trainer.is_ok() && evaluator.is_ok());
    const auto evaluated =
        evaluator.value()->evaluate(1, [&](int64_t, int64_t index, std::span<int64_t> tokens) {
          synthetic_sample(shape.vocab, 0, index, tokens);
        });
    const Result<StepResult> step = trainer.value()->step(0);
    ASSERT_TRUE(evaluated.is_ok() && step.is_ok());
    EXPECT_EQ(evaluated.value().loss, step.value().loss);
    EXPECT_EQ(evaluated.value().tokens, step.value().tokens);
  });
}

}  // namespace
}  // namespace hdt::training::testing
