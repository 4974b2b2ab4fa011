// equality_test.cc: however the work is split, training is the same as in one process with the same global
// batches.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>

#include "tests/training/engine/training_run.h"
#include "tests/training/engine/wrapped_compute.h"
#include "tests/training/engine/wrapped_messenger.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kSteps = 50;

TrainerOptions options() {
  TrainerOptions result;
  result.seed = 7;
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 5, .total_steps = kSteps};
  result.clip_gradient_norm = 0.5;  // low enough that clipping takes part
  result.bucket_elements = 100;     // several buckets a rank
  return result;
}

void expect_equal_runs(const Layout& split, const FakeShape& shape = {}) {
  const Layout whole(shape.num_layers, {{{shape.num_layers}, static_cast<int>(split.global_batch_size()), 1}},
                     RankOrder::kTpDpPp);
  const RunResult one = train(whole, shape, kSteps, options());
  const RunResult many = train(split, shape, kSteps, options());
  ASSERT_EQ(one.steps.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(many.steps.size(), static_cast<size_t>(kSteps));
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(many.steps[step].loss, one.steps[step].loss, 1e-5 * one.steps[step].loss) << "step " << step;
    EXPECT_NEAR(many.steps[step].gradient_norm, one.steps[step].gradient_norm,
                1e-4 * one.steps[step].gradient_norm);
    EXPECT_EQ(many.steps[step].tokens, one.steps[step].tokens);
  }
  EXPECT_LT(one.steps.back().loss,
            0.8 * one.steps.front().loss);  // it did learn, so there was something to compare
  EXPECT_GT(one.steps.front().gradient_norm, options().clip_gradient_norm);
}

TEST(EqualityTest, HeterogeneousBothWays) {
  expect_equal_runs(Layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp));
}

TEST(EqualityTest, StagesHandOnDifferentSizes) {
  expect_equal_runs(Layout(4, {{{1, 2, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp), {.padding = 3});
}

// The order of forwards and backwards changes no sum: all schedules make the same bits.
TEST(EqualityTest, SchedulesMakeTheSameBits) {
  const FakeShape shape;
  for (const Layout& layout :
       {Layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp),
        Layout(4, {{{1, 1, 1, 1}, 1, 7}, {{4}, 5, 1}, {{1, 3}, 2, 2}}, RankOrder::kTpDpPp),
        Layout(4, {{{1, 1, 1, 1}, 3, 2}}, RankOrder::kTpPpDp)}) {
    const RunResult expected = train(layout, shape, 10, options());
    for (const ScheduleKind kind : kScheduleKinds) {
      SCOPED_TRACE(schedule_name(kind));
      TrainerOptions with = options();
      with.schedule = kind;
      const RunResult run = train(layout, shape, 10, with);
      ASSERT_EQ(run.steps.size(), expected.steps.size());
      for (size_t step = 0; step < run.steps.size(); ++step)
        EXPECT_EQ(run.steps[step].loss, expected.steps[step].loss);
      EXPECT_EQ(run.parameters, expected.parameters);
      EXPECT_EQ(run.sums_started, expected.sums_started);
    }
  }
}

// A model whose backward is in one.
class WholeBackward final : public WrappedCompute {
 public:
  using WrappedCompute::WrappedCompute;
  bool has_split_backward() const override { return false; }
};

TEST(EqualityTest, AScheduleThatSplitsTheBackwardIsRefusedWhereTheModelDoesNot) {
  const FakeShape shape;
  const Layout layout(4, {{{4}, 2, 1}}, RankOrder::kTpDpPp);
  ThreadWorld world(layout);
  FakeCompute whole(shape, layout.units_of({0, 0}));
  WholeBackward compute(whole);
  const auto messenger = world.messenger(0);
  TrainerOptions with = options();
  with.schedule = ScheduleKind::kZeroBubble;
  const auto trainer = Trainer::create(
      layout, compute, *messenger, [](int64_t, int64_t, std::span<int64_t>) {}, with);
  ASSERT_FALSE(trainer.is_ok());
  EXPECT_EQ(trainer.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(trainer.status().message(),
            "schedule zero-bubble: this model's backward is not in two parts; use 1f1b");
}

TEST(EqualityTest, MicroBatchSizesDiffer) {
  expect_equal_runs(Layout(4, {{{3, 1}, 3, 4}, {{2, 2}, 1, 2}}, RankOrder::kTpPpDp));
}

TEST(EqualityTest, DefaultRankOrder) {
  expect_equal_runs(Layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpDpPp));
}

TEST(EqualityTest, NumbersOfStagesDiffer) {
  expect_equal_runs(Layout(4, {{{1, 1, 1, 1}, 1, 7}, {{4}, 5, 1}, {{1, 3}, 2, 2}}, RankOrder::kTpDpPp));
}

TEST(EqualityTest, MorePipelineThanMicroBatches) {
  expect_equal_runs(Layout(4, {{{1, 1, 1, 1}, 3, 2}}, RankOrder::kTpPpDp));
}

TEST(EqualityTest, RanksInDifferentStepsAreToldSo) {
  const FakeShape shape;
  const Layout layout(4, {{{4}, 1, 1}, {{2, 2}, 1, 1}}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  run_ranks(3, [&](int rank) {
    FakeCompute compute(shape, layout.units_of(layout.position_of(rank)));
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, options());
    ASSERT_TRUE(trainer.is_ok());
    EXPECT_TRUE(trainer.value()->step(1'000'003).is_ok());
    const std::span<float> parameters = trainer.value()->memory().all_parameters().as<float>();
    const std::vector<float> before(parameters.begin(), parameters.end());
    // Their sum is that of the same step on all ranks.
    const Result<StepResult> step = trainer.value()->step(1'000'003 + rank);
    ASSERT_FALSE(step.is_ok());
    EXPECT_EQ(step.status().code(), Code::kMismatch);
    EXPECT_EQ(std::vector<float>(parameters.begin(), parameters.end()), before);
  });
}

// The last one to get the sums over the world: if another rank aborts in the meantime, its sum fails.
class LastMessenger final : public WrappedMessenger {
 public:
  LastMessenger(std::unique_ptr<Messenger> wrapped, std::shared_future<void> aborted)
      : WrappedMessenger(std::move(wrapped)), aborted_(std::move(aborted)) {}

  Status sum_over_world(std::span<double> values) override {
    HDT_RETURN_IF_ERROR(WrappedMessenger::sum_over_world(values));
    const bool failed = aborted_.wait_for(std::chrono::milliseconds(200)) == std::future_status::ready;
    return failed ? Status(Code::kAborted, "another rank aborted the group") : Status::ok();
  }

 private:
  std::shared_future<void> aborted_;
};

TEST(EqualityTest, ARankThatAbortsAtOnceTakesTheReasonFromNobody) {
  const FakeShape shape;
  const Layout layout(4, {{{4}, 1, 1}, {{2, 2}, 1, 1}}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  std::promise<void> abort;
  const std::shared_future<void> aborted = abort.get_future().share();
  run_ranks(3, [&](int rank) {
    FakeCompute compute(shape, layout.units_of(layout.position_of(rank)));
    std::unique_ptr<Messenger> messenger = world.messenger(rank);
    if (rank == 0) messenger = std::make_unique<LastMessenger>(std::move(messenger), aborted);
    auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, options());
    ASSERT_TRUE(trainer.is_ok());
    const Result<StepResult> step = trainer.value()->step(rank);
    if (rank == 2) abort.set_value();
    ASSERT_FALSE(step.is_ok());
    EXPECT_EQ(step.status().code(), Code::kMismatch) << step.status().message();
  });
}

TEST(EqualityTest, AnUpdateOfTheUsersOwnGetsTheMeanGradient) {
  const FakeShape shape;
  const Layout layout(4, {{{4}, 2, 1}}, RankOrder::kTpDpPp);
  ThreadWorld world(layout);
  FakeCompute compute(shape, layout.units_of({0, 0}));
  const auto messenger = world.messenger(0);
  TrainerOptions with_update = options();
  double scale = 0;
  with_update.update = [&scale](double factor, std::span<const BucketShards>) { scale = factor; };
  auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, with_update);
  ASSERT_TRUE(trainer.is_ok());
  const std::span<float> parameters = trainer.value()->memory().all_parameters().as<float>();
  const std::vector<float> before(parameters.begin(), parameters.end());
  const Result<StepResult> step = trainer.value()->step(0);
  ASSERT_TRUE(step.is_ok());
  EXPECT_EQ(std::vector<float>(parameters.begin(), parameters.end()), before);  // nobody else updates
  double square = 0;
  for (const float gradient : trainer.value()->memory().all_gradients().as<float>())
    square += gradient * gradient;
  EXPECT_GT(step.value().gradient_norm, options().clip_gradient_norm);
  EXPECT_NEAR(std::sqrt(square) * scale, options().clip_gradient_norm, 1e-5);
}

TEST(EqualityTest, StartValuesDoNotDependOnTheSplit) {
  const FakeShape shape;
  const RunResult one = train(Layout(4, {{{4}, 1, 1}}, RankOrder::kTpDpPp), shape, 0, options());
  const RunResult many = train(Layout(4, {{{1, 2, 1}, 1, 1}}, RankOrder::kTpDpPp), shape, 0, options());
  EXPECT_EQ(one.parameters, many.parameters);
}

TEST(EqualityTest, SameBitsEveryTime) {
  const FakeShape shape;
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  EXPECT_EQ(train(layout, shape, 10, options()).parameters, train(layout, shape, 10, options()).parameters);
}

TEST(EqualityTest, DivergenceIsToldWithItsRankAndUpdatesNothing) {
  const FakeShape shape;
  const Layout layout(4, {{{4}, 2, 1}}, RankOrder::kTpDpPp);
  ThreadWorld world(layout);
  FakeCompute compute(shape, layout.units_of({0, 0}));
  const auto messenger = world.messenger(0);
  auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, options());
  ASSERT_TRUE(trainer.is_ok());
  trainer.value()->memory().parameters(2).as<float>()[0] = std::nanf("");
  const std::span<float> untouched = trainer.value()->memory().parameters(1).as<float>();
  const std::vector<float> before(untouched.begin(), untouched.end());
  const Result<StepResult> step = trainer.value()->step(0);
  ASSERT_TRUE(step.is_ok()) << step.status().message();
  EXPECT_TRUE(step.value().diverged);
  EXPECT_EQ(step.value().diverged_rank, 0);
  EXPECT_EQ(std::vector<float>(untouched.begin(), untouched.end()), before);
}

}  // namespace
}  // namespace hdt::training::testing
