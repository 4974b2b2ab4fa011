// number_types_test.cc: the torch model in fp64, in which layouts can be compared to the last bit, and in
// fp16 with a scaled loss.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "tests/training/torch/small_stage.h"

namespace hdt::training::testing {
namespace {

struct TypedRun {
  std::vector<StepResult> steps;
  std::vector<std::vector<double>> parameters;  // of replica 0, by unit
};

struct TypedRunOptions {
  TorchStageOptions stage;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  ShardOptions shards = {};
  NumberType gradients = NumberType::kFloat64;
  std::optional<LossScaleOptions> loss_scale = {};
};

TypedRun run_typed(const Layout& layout, const ModelShape& shape, int64_t steps,
                   const TypedRunOptions& with) {
  ThreadWorld world(layout);
  TypedRun run;
  run.parameters.resize(layout.num_units());
  TrainerOptions options;
  options.seed = 11;
  options.learning_rate = {.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 2, .total_steps = steps};
  options.bucket_elements = 10000;
  options.schedule = with.schedule;
  options.shards = with.shards;
  options.gradients = with.gradients;
  options.loss_scale = with.loss_scale;
  run_ranks(layout.world_size(), [&](int rank) {
    std::vector<std::unique_ptr<TextCompute>> owned;
    std::vector<StageCompute*> computes;
    for (const UnitRange& units : layout.ranges_of(rank)) {
      owned.push_back(make_torch_stage(shape, units, with.stage));
      computes.push_back(owned.back().get());
    }
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab_size, ModelChunks(computes), *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int64_t step = 0; step < steps; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      if (rank == 0) run.steps.push_back(done.value());
    }
    ASSERT_TRUE(trainer.value()->settle().is_ok());
    if (layout.position_of(rank).replica != 0) return;
    for (const int unit : trainer.value()->memory().units()) {
      if (unit == kTiedUnit) continue;
      const TypedSpan values = trainer.value()->memory().parameters(unit);
      run.parameters[unit].resize(values.size());
      convert(values, run.parameters[unit]);
    }
  });
  return run;
}

ModelShape model_of(ModelFamily family) {
  ModelShape shape = small_shape();
  shape.family = family;
  return shape;
}

TEST(TorchInFp64, StagesSchedulesRecomputationAndShardsChangeNoBit) {
  set_torch_threads(1);
  constexpr int64_t kTorchSteps = 4;
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    const ModelShape shape = model_of(family);
    const TorchStageOptions plain{.type = NumberType::kFloat64, .dropout = {0.1, 0.1, 5}};
    TorchStageOptions layers = plain;
    layers.recomputed_layers = 1;
    TorchStageOptions attention = plain;
    attention.recomputed_attentions = 100;
    const Layout flat(4, {{{4}, 2, 4}, {{4}, 1, 2}}, RankOrder::kTpPpDp);
    const Layout stages(4, {{{3, 1}, 2, 4}, {{1, 2, 1}, 1, 2}}, RankOrder::kTpDpPp);
    const Layout ends(4, {{{0, 4}, 2, 4}, {{4, 0}, 1, 2}}, RankOrder::kTpPpDp);
    const Layout chunks(4, {{{1, 1, 1, 1}, 2, 4, 2}, {{2, 0, 1, 1}, 1, 2, 2}}, RankOrder::kTpPpDp);
    const TypedRun expected = run_typed(flat, shape, kTorchSteps, {.stage = plain});
    ASSERT_EQ(expected.steps.size(), static_cast<size_t>(kTorchSteps));
    struct Other {
      const char* name;
      const Layout& layout;
      TypedRunOptions with;
    };
    for (const Other& other : {
             Other{"stages", stages, {.stage = plain}},
             Other{"embedding and head alone", ends, {.stage = plain}},
             Other{"zero bubble", stages, {.stage = plain, .schedule = ScheduleKind::kZeroBubble}},
             Other{"chunks", chunks, {.stage = plain, .schedule = ScheduleKind::kInterleaved}},
             Other{"recomputed layers", stages, {.stage = layers}},
             Other{"recomputed attention", flat, {.stage = attention}},
             Other{"shards", stages, {.stage = plain, .shards = {true, {1, 2, 3, 4, 5}}}},
         }) {
      SCOPED_TRACE(other.name);
      const TypedRun run = run_typed(other.layout, shape, kTorchSteps, other.with);
      ASSERT_EQ(run.steps.size(), expected.steps.size());
      for (size_t step = 0; step < run.steps.size(); ++step) {
        EXPECT_EQ(run.steps[step].loss, expected.steps[step].loss) << step;
        EXPECT_EQ(run.steps[step].gradient_norm, expected.steps[step].gradient_norm) << step;
      }
      EXPECT_EQ(run.parameters, expected.parameters);
    }
  }
}

TEST(TorchInFp64, UnequalReplicasAreOneProcessToRoundingInFp64) {
  set_torch_threads(1);
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    const ModelShape shape = model_of(family);
    const TypedRunOptions with{.stage = {.type = NumberType::kFloat64}};
    const TypedRun one = run_typed(Layout(4, {{{4}, 16, 1}}, RankOrder::kTpDpPp), shape, 10, with);
    const TypedRun four =
        run_typed(Layout(4, {{{3, 1}, 3, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp), shape, 10, with);
    ASSERT_EQ(one.steps.size(), 10U);
    ASSERT_EQ(four.steps.size(), 10U);
    for (size_t step = 0; step < one.steps.size(); ++step)
      EXPECT_NEAR(four.steps[step].loss, one.steps[step].loss, 1e-11 * one.steps[step].loss) << step;
    EXPECT_LT(one.steps.back().loss, 0.99 * one.steps.front().loss);
  }
}

TypedRunOptions in_half(NumberType gradients,
                        const TorchStageOptions& stage = {.type = NumberType::kFloat16}) {
  return {.stage = stage, .gradients = gradients, .loss_scale = LossScaleOptions{.initial = 4096}};
}

// fp16 has 11 digits, so layouts agree to some thousandths; so do fp16 and fp32.
TEST(TorchInFp16, UnequalReplicasAreOneProcessAndFp32ToRounding) {
  set_torch_threads(1);
  for (const bool tied : {false, true}) {
    for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
      ModelShape shape = model_of(family);
      shape.tied_head = tied;
      const auto run = [&](const Layout& layout, const TypedRunOptions& with) {
        return run_typed(tied ? layout.with_tied_unit() : layout, shape, 12, with);
      };
      const Layout whole(4, {{{4}, 16, 1}}, RankOrder::kTpDpPp);
      const TypedRun reference =
          run(whole, {.stage = {.type = NumberType::kFloat32}, .gradients = NumberType::kFloat32});
      for (const NumberType gradients : {NumberType::kFloat16, NumberType::kFloat32}) {
        const TypedRun one = run(whole, in_half(gradients));
        const TypedRun four =
            run(Layout(4, {{{3, 1}, 3, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp), in_half(gradients));
        ASSERT_EQ(reference.steps.size(), 12U);
        ASSERT_EQ(one.steps.size(), 12U);
        ASSERT_EQ(four.steps.size(), 12U);
        for (size_t step = 0; step < one.steps.size(); ++step) {
          EXPECT_FALSE(four.steps[step].skipped);
          EXPECT_EQ(four.steps[step].loss_scale, 4096);
          EXPECT_NEAR(four.steps[step].loss, one.steps[step].loss, 1e-3 * one.steps[step].loss) << step;
          EXPECT_NEAR(one.steps[step].loss, reference.steps[step].loss, 2e-3 * one.steps[step].loss) << step;
          EXPECT_NEAR(one.steps[step].gradient_norm, reference.steps[step].gradient_norm,
                      0.02 * one.steps[step].gradient_norm)
              << step;
        }
        EXPECT_LT(one.steps.back().loss, 0.98 * one.steps.front().loss);
      }
    }
  }
}

TEST(TorchInFp16, StagesSchedulesAndRecomputationChangeNoBit) {
  set_torch_threads(1);
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    const ModelShape shape = model_of(family);
    TorchStageOptions recomputed{.type = NumberType::kFloat16};
    recomputed.recomputed_layers = 2;
    const Layout flat(4, {{{4}, 2, 4}, {{4}, 1, 2}}, RankOrder::kTpPpDp);
    const Layout stages(4, {{{3, 1}, 2, 4}, {{1, 2, 1}, 1, 2}}, RankOrder::kTpPpDp);
    // The norm is summed in another order on other stages, so it clips nothing here.
    for (const NumberType gradients : {NumberType::kFloat16, NumberType::kFloat32}) {
      const TypedRun expected = run_typed(flat, shape, 4, in_half(gradients));
      ASSERT_EQ(expected.steps.size(), 4U);
      TypedRunOptions zero_bubble = in_half(gradients);
      zero_bubble.schedule = ScheduleKind::kZeroBubble;
      EXPECT_EQ(run_typed(flat, shape, 4, in_half(gradients, recomputed)).parameters, expected.parameters);
      EXPECT_EQ(run_typed(flat, shape, 4, zero_bubble).parameters, expected.parameters);
      const TypedRun split = run_typed(stages, shape, 4, in_half(gradients));
      ASSERT_EQ(split.steps.size(), 4U);
      EXPECT_EQ(split.steps[0].loss, expected.steps[0].loss);
      EXPECT_EQ(run_typed(stages, shape, 4, zero_bubble).parameters, split.parameters);
    }
  }
}

// Masked tokens are known after the backward only: the gradients are those of the tokens that count.
TEST(TorchInFp16, GradientsAreThoseOfTheTokensThatCount) {
  set_torch_threads(1);
  ModelShape shape = model_of(ModelFamily::kLlama);
  shape.masked_after = 3;
  const Layout layout(4, {{{3, 1}, 2, 2}}, RankOrder::kTpDpPp);
  const TypedRun reference = run_typed(
      layout, shape, 1, {.stage = {.type = NumberType::kFloat32}, .gradients = NumberType::kFloat32});
  const TypedRun run = run_typed(layout, shape, 1, in_half(NumberType::kFloat16));
  ASSERT_EQ(reference.steps.size(), 1U);
  ASSERT_EQ(run.steps.size(), 1U);
  EXPECT_LT(run.steps[0].tokens, 4 * shape.sequence_length);
  EXPECT_EQ(run.steps[0].tokens, reference.steps[0].tokens);
  EXPECT_NEAR(run.steps[0].gradient_norm, reference.steps[0].gradient_norm,
              1e-3 * reference.steps[0].gradient_norm);
}

}  // namespace
}  // namespace hdt::training::testing
