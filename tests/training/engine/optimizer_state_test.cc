// optimizer_state_test.cc: the state of training by the tensors' names: each tensor is written by one rank,
// and a run that goes on from a state of any layout is the run that was never interrupted.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <string>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kResumedSteps = 12;

TrainerOptions short_run() {
  TrainerOptions result;
  result.seed = 7;
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 3, .total_steps = kResumedSteps};
  result.bucket_elements = 100;
  return result;
}

struct Saved {
  std::vector<int64_t> shape;
  std::vector<double> parameters, exp_avg, exp_avg_sq;
  int times = 0;  // written
  bool operator==(const Saved&) const = default;
};
using State = std::map<std::string, Saved>;

std::vector<double> doubles_of(ConstTypedSpan values) {
  std::vector<double> doubles(values.size());
  convert(values, doubles);
  return doubles;
}

// Steps `first` .. `end` - 1. Begins with `from`, unless it is empty; returns what the ranks write at the
// end.
State run(const Layout& layout, int64_t first, int64_t end, const State& from, std::vector<double>& losses,
          const ShardOptions& shards = {}, double clip_gradient_norm = 0.5,
          NumberType type = NumberType::kFloat32) {
  const FakeShape shape{.type = type};
  ThreadWorld world(layout);
  State state;
  std::mutex mutex;
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(shape, layout, rank);
    const auto messenger = world.messenger(rank);
    TrainerOptions options = short_run();
    options.shards = shards;
    options.gradients = type;
    options.clip_gradient_norm = clip_gradient_norm;
    auto trainer = make_trainer(layout, shape.vocab, chunks.computes(), *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    const Optimizer& optimizer = *trainer.value()->optimizer();
    for (const TensorState& tensor : optimizer.tensors()) {
      if (from.empty()) break;
      const Saved& saved = from.at(tensor.info->name);
      ASSERT_EQ(saved.shape, tensor.info->shape);
      set_parameters(tensor, saved.parameters);
      const auto part = [&](const std::vector<double>& whole) {
        return std::span(whole).subspan(tensor.first, tensor.exp_avg.size());
      };
      convert(part(saved.exp_avg), tensor.exp_avg);
      convert(part(saved.exp_avg_sq), tensor.exp_avg_sq);
    }
    for (int64_t step = first; step < end; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      if (rank == 0) losses.push_back(done.value().loss);
    }
    const Result<WrittenState> written = trainer.value()->state_to_write();
    ASSERT_TRUE(written.is_ok()) << written.status().message();
    const std::lock_guard lock(mutex);
    for (const TensorState& tensor : written.value().tensors) {
      Saved& saved = state[tensor.info->name];
      saved.shape = tensor.info->shape;
      saved.parameters = doubles_of(tensor.master);
      saved.exp_avg = doubles_of(tensor.exp_avg);
      saved.exp_avg_sq = doubles_of(tensor.exp_avg_sq);
      ++saved.times;
    }
  });
  return state;
}

// All have 12 samples a step.
std::vector<Layout> layouts() {
  return {Layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp),
          Layout(4, {{{4}, 12, 1}}, RankOrder::kTpPpDp),
          Layout(4, {{{1, 1, 1, 1}, 1, 7}, {{4}, 5, 1}}, RankOrder::kTpDpPp),
          Layout(4, {{{4}, 2, 2}, {{4}, 2, 2}, {{4}, 4, 1}}, RankOrder::kTpPpDp)};
}

void expect_each_tensor_once(const ShardOptions& shards) {
  for (const Layout& layout : layouts()) {
    std::vector<double> losses;
    const State state = run(layout, 0, 1, {}, losses, shards);
    ASSERT_EQ(state.size(), 10U);
    EXPECT_EQ(state.at("embedding").shape, (std::vector<int64_t>{17, 8}));
    EXPECT_EQ(state.at("layer.3.weight").shape, (std::vector<int64_t>{8, 8}));
    EXPECT_EQ(state.at("layer.0.bias").shape, (std::vector<int64_t>{8}));
    EXPECT_EQ(state.at("head").shape, (std::vector<int64_t>{17, 8}));
    for (const auto& [name, saved] : state) {
      EXPECT_EQ(saved.times, 1) << name;
      EXPECT_NE(saved.exp_avg, std::vector<double>(saved.exp_avg.size())) << name;
    }
  }
}

TEST(OptimizerState, EachTensorIsWrittenByOneRankWithItsNameAndShape) {
  expect_each_tensor_once({});
  expect_each_tensor_once({true, {}});
}

// The states of runs with shards, however these are cut, and without are the same: what is written, and where
// it leads. Without clipping, as norms are summed in another order.
TEST(OptimizerState, AShardedRunGoesOnWithOtherShardsOrNone) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const NumberType type : {NumberType::kFloat32, NumberType::kBFloat16}) {
    SCOPED_TRACE(number_type_name(type));
    for (const Layout& layout : layouts()) {
      std::vector<double> undisturbed;
      const State whole = run(layout, 0, kResumedSteps, {}, undisturbed, {}, 0, type);
      const std::vector<ShardOptions> settings = {
          {}, {true, {}}, random_shards(layout, random), random_shards(layout, random)};
      for (const ShardOptions& first : settings) {
        std::vector<double> begun;
        const State half = run(layout, 0, kResumedSteps / 2, {}, begun, first, 0, type);
        for (const ShardOptions& second : settings) {
          std::vector<double> resumed = begun;
          EXPECT_TRUE(run(layout, kResumedSteps / 2, kResumedSteps, half, resumed, second, 0, type) == whole);
          EXPECT_EQ(resumed, undisturbed);
        }
      }
    }
  }
}

// A run reads the state that another one has written, to the last bit, on every layout and in every type: the
// state has the masters, and not the parameters that were rounded from them.
TEST(OptimizerState, AStateDoesNotDependOnTheTypeOfTheParameters) {
  std::vector<double> losses;
  const auto types = {NumberType::kFloat32, NumberType::kBFloat16};
  for (const NumberType first : types) {
    const State state =
        run(layouts().front(), 0, kResumedSteps / 2, {}, losses, {true, {3, 0, 1, 2}}, 0.5, first);
    const std::vector<double>& parameters = state.at("layer.0.weight").parameters;
    EXPECT_TRUE(std::ranges::any_of(parameters, [](float value) {
      return static_cast<float>(BFloat16(value)) != value;
    })) << "the masters have no more digits than the parameters";
    for (const NumberType second : types) {
      for (const Layout& layout : layouts()) {
        EXPECT_TRUE(run(layout, kResumedSteps / 2, kResumedSteps / 2, state, losses, {true, {}}, 0.5,
                        second) == state)
            << number_type_name(first) << " to " << number_type_name(second);
      }
    }
  }
}

TEST(OptimizerState, OnTheSameLayoutARunThatGoesOnHasTheSameBits) {
  for (const Layout& layout : layouts()) {
    std::vector<double> undisturbed;
    std::vector<double> resumed;
    const State whole = run(layout, 0, kResumedSteps, {}, undisturbed);
    const State half = run(layout, 0, kResumedSteps / 2, {}, resumed);
    EXPECT_EQ(run(layout, kResumedSteps / 2, kResumedSteps, half, resumed), whole);
    EXPECT_EQ(resumed, undisturbed);
  }
}

TEST(OptimizerState, OnAnotherLayoutItIsTheSameToRounding) {
  std::vector<double> undisturbed;
  const State whole = run(layouts().front(), 0, kResumedSteps, {}, undisturbed);
  for (const Layout& layout : layouts()) {
    std::vector<double> resumed;
    const State half = run(layouts().front(), 0, kResumedSteps / 2, {}, resumed, {true, {3, 0, 1, 2}});
    const State rest = run(layout, kResumedSteps / 2, kResumedSteps, half, resumed, {true, {}});
    for (int64_t step = 0; step < kResumedSteps; ++step)
      EXPECT_NEAR(resumed[step], undisturbed[step], 1e-5 * undisturbed[step]) << step;
    for (const auto& [name, saved] : whole) {
      for (size_t i = 0; i < saved.parameters.size(); ++i)
        EXPECT_NEAR(rest.at(name).parameters[i], saved.parameters[i], 1e-4) << name << " " << i;
    }
  }
  // Without the moments it would be another run.
  std::vector<double> resumed;
  State half = run(layouts().front(), 0, kResumedSteps / 2, {}, resumed);
  for (auto& [name, saved] : half) saved.exp_avg_sq.assign(saved.exp_avg_sq.size(), 0);
  run(layouts().front(), kResumedSteps / 2, kResumedSteps, half, resumed);
  EXPECT_GT(std::abs(resumed.back() - undisturbed.back()), 1e-4 * undisturbed.back());
}

TEST(OptimizerState, SumsOfTheCallerTravelWithTheStep) {
  const FakeShape shape;
  const Layout layout = layouts().front();
  ThreadWorld world(layout);
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(shape, layout, rank);
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab, chunks.computes(), *messenger, short_run());
    ASSERT_TRUE(trainer.is_ok());
    std::vector<double> sums = {1, rank == 2 ? 1.0 : 0.0};
    ASSERT_TRUE(trainer.value()->step(0, sums).is_ok());
    EXPECT_EQ(sums, (std::vector<double>{4, 1}));
  });
}

}  // namespace
}  // namespace hdt::training::testing
