// fp64_equality_test.cc: in fp64 a run differs from one process by rounding in fp64 alone, and by no bit from
// a run whose replicas are split otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kDoubleSteps = 15;

const FakeShape kDouble{.type = NumberType::kFloat64};

TrainerOptions double_run() {
  TrainerOptions result;
  result.seed = 7;
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 2, .total_steps = kDoubleSteps};
  result.clip_gradient_norm = 0.5;  // so that the norm takes part in every bit
  result.bucket_elements = 100;
  result.gradients = NumberType::kFloat64;
  return result;
}

void expect_same_bits(const RunResult& run, const RunResult& expected) {
  ASSERT_EQ(run.steps.size(), expected.steps.size());
  for (size_t step = 0; step < run.steps.size(); ++step) {
    EXPECT_EQ(run.steps[step].loss, expected.steps[step].loss) << step;
    EXPECT_EQ(run.steps[step].gradient_norm, expected.steps[step].gradient_norm) << step;
  }
  EXPECT_EQ(run.parameters, expected.parameters);
}

double greatest_difference(const RunResult& run, const RunResult& one) {
  double greatest = 0;
  for (const auto& replica : run.parameters) {
    for (size_t unit = 0; unit < replica.size(); ++unit) {
      EXPECT_EQ(replica[unit].size(), one.parameters[0][unit].size());
      for (size_t i = 0; i < replica[unit].size(); ++i)
        greatest = std::max(greatest, std::abs(replica[unit][i] - one.parameters[0][unit][i]));
    }
  }
  return greatest;
}

// The same replicas and micro-batches on other stages, and perhaps on other ranks.
Layout split_otherwise(const Layout& layout, ScheduleKind& schedule, std::mt19937& random) {
  const auto below = [&](int count) { return std::uniform_int_distribution<int>(0, count - 1)(random); };
  std::vector<Replica> replicas;
  const bool interleaved = below(2) == 0;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    Replica replica = layout.replica(i);
    replica.stage_layers.clear();
    replica.chunks = 1;
    if (interleaved && replica.num_micro_batches % 2 == 0) {
      replica.chunks = 2;
      replica.stage_layers = below(2) == 0 ? std::vector<int>{1, 1, 1, 1} : std::vector<int>{0, 2, 1, 1};
    } else {
      for (int layers = layout.num_layers(); layers > 0; layers -= replica.stage_layers.back())
        replica.stage_layers.push_back(1 + below(layers));
    }
    replicas.push_back(replica);
  }
  schedule = interleaved ? ScheduleKind::kInterleaved
                         : kScheduleKinds[below(static_cast<int>(std::size(kScheduleKinds)))];
  return {layout.num_layers(), replicas, below(2) == 0 ? RankOrder::kTpDpPp : RankOrder::kTpPpDp};
}

TEST(Fp64, StagesSchedulesRanksBucketsAndShardsChangeNoBit) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::vector<NamedLayout> layouts = layout_table();
  for (NamedLayout& more : random_layouts(10, random)) layouts.push_back(std::move(more));
  for (const NamedLayout& named : layouts) {
    SCOPED_TRACE(named.name);
    const RunResult expected = train(named.layout, kDouble, kDoubleSteps, double_run());
    EXPECT_GT(expected.steps.front().gradient_norm, double_run().clip_gradient_norm);
    for (int time = 0; time < 3; ++time) {
      TrainerOptions with = double_run();
      const Layout other = split_otherwise(named.layout, with.schedule, random);
      SCOPED_TRACE(schedule_name(with.schedule));
      if (time > 0) with.shards = random_shards(other, random);
      with.bucket_elements = time == 2 ? 1 : 150;
      expect_same_bits(train(other, kDouble, kDoubleSteps, with), expected);
    }
    if (HasFailure()) return;
  }
}

TEST(Fp64, AllLayoutsAreOneProcessToRoundingInFp64) {
  for (const bool tied : {false, true}) {
    for (const NamedLayout& named : layout_table()) {
      SCOPED_TRACE(named.name);
      FakeShape shape = kDouble;
      shape.tied = tied;
      const Layout layout = tied ? named.layout.with_tied_unit() : named.layout;
      const RunResult one = train(one_process(layout), shape, kDoubleSteps, double_run());
      EXPECT_LT(one.steps.back().loss, 0.95 * one.steps.front().loss);
      const RunResult run = train(layout, shape, kDoubleSteps, double_run());
      ASSERT_EQ(run.steps.size(), one.steps.size());
      for (size_t step = 0; step < run.steps.size(); ++step) {
        EXPECT_NEAR(run.steps[step].loss, one.steps[step].loss, 1e-12 * one.steps[step].loss) << step;
        EXPECT_NEAR(run.steps[step].gradient_norm, one.steps[step].gradient_norm,
                    1e-12 * one.steps[step].gradient_norm)
            << step;
      }
      if (tied) continue;  // its parameters stand at other places
      EXPECT_LT(greatest_difference(run, one), 1e-10);
    }
  }
}

// What is computed in float anywhere on the way would show: its numbers are 6e-8 apart, relative.
TEST(Fp64, NothingOnTheWayIsFloat) {
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  const RunResult run = train(layout, kDouble, kDoubleSteps, double_run());
  size_t floats = 0;
  size_t all = 0;
  for (const auto& unit : run.parameters[0]) {
    for (const double value : unit) {
      ++all;
      if (static_cast<double>(static_cast<float>(value)) == value) ++floats;
    }
  }
  EXPECT_GT(all, 500U);
  EXPECT_LE(floats, all / 100);
}

TEST(Fp64, GradientsInFp32AreRefused) {
  const Layout layout(4, {{{4}, 2, 1}}, RankOrder::kTpDpPp);
  ThreadWorld world(layout);
  FakeCompute compute(kDouble, layout.units_of({0, 0}));
  const auto messenger = world.messenger(0);
  TrainerOptions with = double_run();
  with.gradients = NumberType::kFloat32;
  const auto trainer = make_trainer(layout, kDouble.vocab, compute, *messenger, with);
  ASSERT_FALSE(trainer.is_ok());
  EXPECT_EQ(trainer.status().message(),
            "gradients in fp32 of parameters in fp64: expected fp64 or the parameters' type");
}

}  // namespace
}  // namespace hdt::training::testing
