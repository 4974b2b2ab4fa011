// mixed_precision_test.cc: parameters, activations and gradients in bf16, with fp32 masters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/training_run.h"
#include "training/numbers/number_type.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kRoundedSteps = 20;

const FakeShape kRounded{.type = NumberType::kBFloat16};

TrainerOptions rounded_run(NumberType gradients) {
  TrainerOptions result;
  result.seed = 7;
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 2, .total_steps = kRoundedSteps};
  result.clip_gradient_norm = 0;  // so that the order in which a norm is summed changes no bit
  result.bucket_elements = 100;
  result.gradients = gradients;
  return result;
}

float rounded(float value) { return static_cast<float>(BFloat16(value)); }

TEST(NumberTypeTest, BFloat16IsRoundedToNearestAndTiesToEven) {
  constexpr float kStep = 0x1p-7F;  // between two numbers at 1
  EXPECT_EQ(rounded(1), 1);
  EXPECT_EQ(rounded(1 + kStep / 2), 1);
  EXPECT_EQ(rounded(std::nextafter(1 + kStep / 2, 2.0F)), 1 + kStep);
  EXPECT_EQ(rounded(1 + 3 * kStep / 2), 1 + 2 * kStep);
  EXPECT_EQ(rounded(-1 - 3 * kStep / 2), -1 - 2 * kStep);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(rounded(-infinity), -infinity);
  // A nan whose bits are all in the half that is cut off.
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7F800001U))));
}

TEST(NumberTypeTest, MemoryOfOneTypeIsNotUsedAsAnother) {
  std::vector<float> values = {1, 2};
  std::vector<BFloat16> shorter(3);
  EXPECT_THROW((void)TypedSpan(values).as<BFloat16>(), std::logic_error);
  EXPECT_THROW(convert(values, shorter), std::logic_error);
  convert(values, TypedSpan(shorter).subspan(1, 2));
  EXPECT_EQ(static_cast<float>(shorter[0]), 0);
  EXPECT_EQ(static_cast<float>(shorter[2]), 2);
}

// bf16 has 8 digits, so the order of sums shows: what a micro-batch adds is rounded. Gradients in fp32 show
// it less.
TEST(MixedPrecision, AllLayoutsAndSchedulesAreOneProcessToRounding) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const NamedLayout& named : layout_table()) {
    const ShardOptions shards = random_shards(named.layout, random);
    SCOPED_TRACE(named.name);
    for (const NumberType gradients : {NumberType::kBFloat16, NumberType::kFloat32}) {
      SCOPED_TRACE(number_type_name(gradients));
      TrainerOptions with = rounded_run(gradients);
      const RunResult one = train(one_process(named.layout), kRounded, kRoundedSteps, with);
      EXPECT_LT(one.steps.back().loss, 0.95 * one.steps.front().loss);
      const RunResult plain = train(named.layout, kRounded, kRoundedSteps, with);
      expect_same_training(plain, one, 0.01);
      // Neither schedules nor shards change a bit.
      with.shards = shards;
      for (const ScheduleKind kind : kScheduleKinds) {
        SCOPED_TRACE(schedule_name(kind));
        with.schedule = kind;
        const RunResult run = train(named.layout, kRounded, kRoundedSteps, with);
        EXPECT_EQ(run.parameters, plain.parameters);
        EXPECT_EQ(run.steps.back().loss, plain.steps.back().loss);
      }
      if (HasFailure()) return;
    }
  }
}

// The step is about the learning rate, and less than half the distance of two bf16 numbers of 0.1 or more. So
// without masters none of these parameters would ever move.
TEST(MixedPrecision, UpdatesThatAreTooSmallForTheParametersAddUpInTheMasters) {
  TrainerOptions with = rounded_run(NumberType::kBFloat16);
  with.learning_rate = {.peak = 1e-4, .minimum = 1e-4, .warmup_steps = 0, .total_steps = 100};
  with.adamw.weight_decay = 0;
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  for (const ShardOptions& shards : {ShardOptions(), ShardOptions{true, {1, 2, 0, 1}}}) {
    with.shards = shards;
    const auto start = train(layout, kRounded, 0, with).parameters.front();
    const auto moved = [&](int64_t steps) {
      const auto end = train(layout, kRounded, steps, with).parameters.front();
      int large = 0;
      int other = 0;
      for (size_t unit = 0; unit < start.size(); ++unit) {
        for (size_t i = 0; i < start[unit].size(); ++i) {
          if (std::abs(start[unit][i]) < 0.1) continue;
          ++large;
          if (end[unit][i] != start[unit][i]) ++other;
        }
      }
      EXPECT_GT(large, 200);
      return static_cast<double>(other) / large;
    };
    EXPECT_EQ(moved(1), 0);
    EXPECT_GT(moved(60), 0.5);
  }
}

TEST(MixedPrecision, TypesThatDoNotGoTogetherAreRefused) {
  const Layout layout(4, {{{4}, 2, 1}}, RankOrder::kTpDpPp);
  const auto refusal = [&](const FakeShape& shape, const TrainerOptions& with) {
    ThreadWorld world(layout);
    FakeCompute compute(shape, layout.units_of({0, 0}));
    const auto messenger = world.messenger(0);
    const auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, with);
    return trainer.is_ok() ? "" : trainer.status().message();
  };
  EXPECT_EQ(refusal({}, rounded_run(NumberType::kBFloat16)),
            "gradients in bf16 of parameters in fp32: expected fp32 or the parameters' type");
  EXPECT_EQ(refusal(kRounded, rounded_run(NumberType::kFloat16)),
            "gradients in fp16 of parameters in bf16: expected fp32 or the parameters' type");
}

TEST(MixedPrecision, ChunksOfTwoTypesAreRefused) {
  const Layout layout(4, {Replica{{1, 1, 1, 1}, 1, 2, 2}}, RankOrder::kTpDpPp);
  ThreadWorld world(layout);
  FakeCompute first(kRounded, layout.units_of({0, 0, 0}));
  FakeCompute second({}, layout.units_of({0, 0, 1}));
  const auto messenger = world.messenger(0);
  TrainerOptions with = rounded_run(NumberType::kFloat32);
  with.schedule = ScheduleKind::kInterleaved;
  const auto trainer = make_trainer(
      layout, kRounded.vocab, ModelChunks(std::vector<StageCompute*>{&first, &second}), *messenger, with);
  ASSERT_FALSE(trainer.is_ok());
  EXPECT_EQ(trainer.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(trainer.status().message(), "chunk 1 has parameters in fp32: expected bf16, as chunk 0 has");
}

}  // namespace
}  // namespace hdt::training::testing
