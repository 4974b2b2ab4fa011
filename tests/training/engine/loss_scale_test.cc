// loss_scale_test.cc: fp16 with a scaled loss: steps whose gradients are too large are skipped on all ranks,
// and on no others; the rest is training as in bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/training_run.h"
#include "tests/training/engine/wrapped_compute.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kScaledSteps = 20;

const FakeShape kHalf{.type = NumberType::kFloat16};

TrainerOptions half_run(NumberType gradients = NumberType::kFloat16) {
  TrainerOptions result;
  result.seed = 7;
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 2, .total_steps = kScaledSteps};
  result.bucket_elements = 100;
  result.gradients = gradients;
  result.loss_scale = LossScaleOptions{.initial = 1024, .window = 1000, .hysteresis = 1};
  return result;
}

// Adds a number to the gradients of this rank in one step.
class Spoiled final : public WrappedCompute {
 public:
  Spoiled(FakeCompute& compute, int64_t step, float with) : WrappedCompute(compute), at_(step), with_(with) {}
  void bind(int unit, TypedSpan parameters, TypedSpan gradients) override {
    if (spoiled_.empty()) spoiled_ = gradients;
    WrappedCompute::bind(unit, parameters, gradients);
  }
  LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) override {
    step_ = batch.step;
    return WrappedCompute::forward(slot, batch, input, output);
  }
  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override {
    if (step_ == at_ || at_ < 0) convert(std::vector<float>{with_}, spoiled_.subspan(0, 1));
    WrappedCompute::backward(slot, output_gradient, input_gradient, unit_done);
  }

 private:
  int64_t at_;  // negative: in all steps
  float with_;
  int64_t step_ = 0;
  TypedSpan spoiled_;
};

struct SpoiledRun {
  std::vector<std::vector<StepResult>> steps;  // by rank
  std::vector<LossScaleState> states;
  std::vector<std::vector<std::vector<double>>> parameters;  // after each step, by rank
};

// Trains with one rank's gradients spoiled; ends where training diverges.
SpoiledRun train_spoiled(const Layout& layout, int spoiled_rank, int64_t spoiled_step, float with,
                         int64_t steps, const TrainerOptions& options) {
  ThreadWorld world(layout);
  SpoiledRun run;
  run.steps.resize(layout.world_size());
  run.states.resize(layout.world_size());
  run.parameters.resize(layout.world_size());
  run_ranks(layout.world_size(), [&](int rank) {
    FakeCompute plain(kHalf, layout.units_of(layout.position_of(rank)));
    Spoiled spoiled(plain, spoiled_step, with);
    StageCompute& compute = rank == spoiled_rank ? static_cast<StageCompute&>(spoiled) : plain;
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, kHalf.vocab, compute, *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int64_t step = 0; step < steps; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      run.steps[rank].push_back(done.value());
      ASSERT_TRUE(trainer.value()->settle().is_ok());
      const TypedSpan all = trainer.value()->memory().all_parameters();
      convert(all, run.parameters[rank].emplace_back(all.size()));
      if (done.value().diverged) break;
    }
    run.states[rank] = trainer.value()->loss_scale_state();
  });
  return run;
}

const Layout& two_by_two() {
  static const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  return layout;
}

TEST(LossScale, AnOverflowOnOneRankSkipsTheStepEverywhereAndNowhereElse) {
  constexpr int64_t kOverflow = 5;
  for (const bool sharded : {false, true}) {
    for (int rank = 0; rank < two_by_two().world_size(); ++rank) {
      SCOPED_TRACE(rank);
      TrainerOptions options = half_run();
      options.shards.sharded = sharded;
      const SpoiledRun run =
          train_spoiled(two_by_two(), rank, kOverflow, std::numeric_limits<float>::infinity(), 10, options);
      for (int other = 0; other < two_by_two().world_size(); ++other) {
        ASSERT_EQ(run.steps[other].size(), 10U);
        for (int64_t step = 0; step < 10; ++step) {
          const StepResult& done = run.steps[other][step];
          EXPECT_FALSE(done.diverged);
          EXPECT_EQ(done.skipped, step == kOverflow);
          EXPECT_EQ(done.skipped_steps, step >= kOverflow ? 1 : 0);
          EXPECT_EQ(done.loss_scale, step > kOverflow ? 512 : 1024);
          EXPECT_TRUE(std::isfinite(done.loss));
          // Nobody has changed a parameter, and the learning rate has not moved on.
          const auto& parameters = run.parameters[other];
          EXPECT_EQ(step > 0 && parameters[step] == parameters[step - 1], step == kOverflow) << step;
          EXPECT_EQ(done.learning_rate,
                    learning_rate(options.learning_rate, step > kOverflow ? step - 1 : step));
        }
        EXPECT_EQ(run.states[other], (LossScaleState{512, 4, 0, 1}));
      }
    }
  }
}

// From too large a scale on: steps are skipped until it fits, and training begins only then.
TEST(LossScale, TooLargeAScaleFallsUntilItFits) {
  TrainerOptions options = half_run();
  options.loss_scale = LossScaleOptions{.window = 3, .hysteresis = 2};
  const RunResult run = train(two_by_two(), kHalf, 40, options);
  double scale = 4294967296;
  int64_t skipped = 0;
  int64_t good = 0;
  int64_t left = 2;
  int grown = 0;
  for (const StepResult& step : run.steps) {
    EXPECT_EQ(step.loss_scale, scale);
    if (step.skipped) {
      ++skipped;
      good = 0;
      if (--left <= 0) scale /= 2;
    } else if (++good == 3) {
      good = 0;
      left = 2;
      scale *= 2;
      ++grown;
    }
    EXPECT_EQ(step.skipped_steps, skipped);
  }
  EXPECT_GT(skipped, 5);
  EXPECT_GT(grown, 2);
  EXPECT_TRUE(run.steps.front().skipped);
  EXPECT_FALSE(run.steps.back().diverged);
}

TEST(LossScale, ANanThatIsNoOverflowEndsTheRunAtTheMinimum) {
  TrainerOptions options = half_run();
  options.loss_scale = LossScaleOptions{.initial = 8, .minimum = 2, .hysteresis = 1};
  const SpoiledRun run = train_spoiled(two_by_two(), 1, -1, std::nanf(""), 10, options);
  for (const auto& steps : run.steps) {
    // 8 and 4 are too large, and 2 is the end.
    ASSERT_EQ(steps.size(), 3U);
    EXPECT_TRUE(steps[0].skipped);
    EXPECT_TRUE(steps[1].skipped);
    EXPECT_FALSE(steps[2].skipped);
    EXPECT_TRUE(steps[2].diverged);
    EXPECT_EQ(steps[2].loss_scale, 2);
    EXPECT_GE(steps[2].diverged_rank, 0);
  }
}

TEST(LossScale, AConstantScaleEndsTheRunAtTheFirstOverflow) {
  TrainerOptions options = half_run();
  options.loss_scale = LossScaleOptions{.constant = 1024};
  const SpoiledRun run =
      train_spoiled(two_by_two(), 1, 3, std::numeric_limits<float>::infinity(), 10, options);
  for (const auto& steps : run.steps) {
    ASSERT_EQ(steps.size(), 4U);
    EXPECT_TRUE(steps[3].diverged);
    EXPECT_FALSE(steps[3].skipped);
  }
}

// fp16 has 11 digits: eight times as near as what the test of bf16 allows.
TEST(LossScale, AllLayoutsAndSchedulesAreOneProcessToRounding) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const NamedLayout& named : layout_table()) {
    const ShardOptions shards = random_shards(named.layout, random);
    SCOPED_TRACE(named.name);
    for (const NumberType gradients : {NumberType::kFloat16, NumberType::kFloat32}) {
      TrainerOptions with = half_run(gradients);
      with.clip_gradient_norm = 0;  // so that the order in which a norm is summed changes no bit
      const RunResult one = train(one_process(named.layout), kHalf, kScaledSteps, with);
      EXPECT_LT(one.steps.back().loss, 0.95 * one.steps.front().loss);
      const RunResult plain = train(named.layout, kHalf, kScaledSteps, with);
      expect_same_training(plain, one, 0.00125);
      with.shards = shards;
      for (const ScheduleKind kind : {ScheduleKind::kZeroBubble, ScheduleKind::kGpipe}) {
        with.schedule = kind;
        const RunResult run = train(named.layout, kHalf, kScaledSteps, with);
        EXPECT_EQ(run.parameters, plain.parameters);
      }
      if (HasFailure()) return;
    }
  }
}

// The true gradients do not depend on the scale: a power of two takes no digits, neither in the parameters
// nor in the norm. Without a scale fp32 has the bits that it always had.
TEST(LossScale, InFp32TheScaleChangesNothingButRounding) {
  TrainerOptions plain = half_run(NumberType::kFloat32);
  plain.loss_scale.reset();
  const RunResult expected = train(two_by_two(), {}, kScaledSteps, plain);
  for (const double scale : {1.0, 1024.0, 0x1p40}) {
    TrainerOptions scaled = plain;
    scaled.loss_scale = LossScaleOptions{.constant = scale};
    const RunResult run = train(two_by_two(), {}, kScaledSteps, scaled);
    for (size_t step = 0; step < run.steps.size(); ++step) {
      EXPECT_NEAR(run.steps[step].loss, expected.steps[step].loss, 1e-5);
      EXPECT_NEAR(run.steps[step].gradient_norm, expected.steps[step].gradient_norm, 1e-4);
    }
  }
}

TEST(LossScale, Fp16WithoutOneIsRefused) {
  ThreadWorld world(two_by_two());
  FakeCompute compute(kHalf, two_by_two().units_of({0, 0}));
  const auto messenger = world.messenger(0);
  TrainerOptions with = half_run();
  with.loss_scale.reset();
  EXPECT_EQ(make_trainer(two_by_two(), kHalf.vocab, compute, *messenger, with).status().message(),
            "parameters in fp16: expected a loss scale, without which gradients are too large for fp16");
  with = half_run();
  with.count_gradient_norm = false;
  EXPECT_EQ(make_trainer(two_by_two(), kHalf.vocab, compute, *messenger, with).status().message(),
            "a loss scale: expected gradient norms, which show what is too large");
}

// An update of the caller's gets a factor that undoes the loss scale, and is not called where a step is
// skipped.
TEST(LossScale, AnUpdateOfTheCallersIsOfTheTrueGradients) {
  constexpr int64_t kOverflow = 2;
  const Layout layout(4, {{{4}, 2, 1}}, RankOrder::kTpDpPp);
  for (const double scale : {1.0, 256.0}) {
    ThreadWorld world(layout);
    FakeCompute plain(kHalf, layout.units_of({0, 0}));
    Spoiled compute(plain, kOverflow, std::numeric_limits<float>::infinity());
    const auto messenger = world.messenger(0);
    TrainerOptions options = half_run(NumberType::kFloat32);
    options.loss_scale = LossScaleOptions{.initial = scale, .minimum = scale / 4, .hysteresis = 1};
    options.clip_gradient_norm = 0;
    std::unique_ptr<Trainer> trainer;
    std::vector<double> norms;  // of the scaled gradients, as the update sees them
    options.update = [&](double gradient_scale, std::span<const BucketShards>) {
      double sum = 0;
      for (const float gradient : trainer->memory().all_gradients().as<float>())
        sum += std::pow(gradient * gradient_scale, 2);
      norms.push_back(std::sqrt(sum));
    };
    auto made = make_trainer(layout, kHalf.vocab, compute, *messenger, options);
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    trainer = made.take();
    for (int64_t step = 0; step < 4; ++step) {
      const Result<StepResult> done = trainer->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      EXPECT_EQ(done.value().skipped, step == kOverflow);
      EXPECT_EQ(norms.size(), static_cast<size_t>(step < kOverflow ? step + 1 : step));
      if (step == kOverflow) continue;
      EXPECT_NEAR(norms.back(), done.value().gradient_norm, 1e-6 * norms.back());
    }
    EXPECT_GT(norms.front(), 0);
  }
}

}  // namespace
}  // namespace hdt::training::testing
