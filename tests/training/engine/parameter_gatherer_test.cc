// parameter_gatherer_test.cc: parameters that others have updated are waited for unit by unit, and never used
// before. The messenger of these tests has NaN in their place until an allgather is waited for.
#include "training/engine/parameter_gatherer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "tests/training/engine/training_run.h"
#include "tests/training/engine/wrapped_compute.h"

namespace hdt::training::testing {
namespace {

// Two replicas, with all layers of each on one stage.
const Layout kLayout(4, {{{4}, 1, 3}, {{4}, 1, 2}}, RankOrder::kTpPpDp);

TrainerOptions options_of_shards() {
  TrainerOptions result;
  result.learning_rate = {.peak = 0.02, .minimum = 0.02, .warmup_steps = 0, .total_steps = 10};
  result.bucket_elements = 1;  // a bucket a unit
  result.shards.sharded = true;
  return result;
}

using UnitNeeded = std::function<void(int unit)>;

// A stage that asks for its units as a test wants it to.
class Asking final : public WrappedCompute {
 public:
  // `change` makes what forward() calls of what the engine has given it.
  Asking(FakeCompute& compute, std::function<UnitNeeded(UnitNeeded)> change)
      : WrappedCompute(compute), change_(std::move(change)) {}

  // Asks for all of them, but after it has computed.
  void ask_late() { late_ = true; }

  LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) override {
    MicroBatch asking = batch;
    asking.unit_needed = batch.unit_needed && !late_ ? change_(batch.unit_needed) : UnitNeeded();
    const LossSum loss = WrappedCompute::forward(slot, asking, input, output);
    for (int unit = units().first; late_ && unit < units().end; ++unit) batch.need(unit);
    return loss;
  }

 private:
  std::function<UnitNeeded(UnitNeeded)> change_;
  bool late_ = false;
};

// Makes steps 0 and 1 on both ranks, with what `change` makes of the trainer's calls, and gives step 1's
// result of each rank to `check`.
void run(const std::function<UnitNeeded(Trainer&, UnitNeeded)>& change, bool late,
         const std::function<void(const Result<StepResult>&)>& check) {
  const FakeShape shape;
  ThreadWorld world(kLayout);
  run_ranks(kLayout.world_size(), [&](int rank) {
    FakeCompute fake(shape, kLayout.units_of(kLayout.position_of(rank)));
    Trainer* current = nullptr;
    Asking compute(fake, [&](UnitNeeded needed) { return change(*current, std::move(needed)); });
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(kLayout, shape.vocab, compute, *messenger, options_of_shards());
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    current = trainer.value().get();
    ASSERT_TRUE(current->step(0).is_ok());
    if (late) compute.ask_late();
    check(current->step(1));
    EXPECT_TRUE(current->settle().is_ok());
  });
}

bool has_come(Trainer& trainer, int unit) {
  std::vector<float> values(trainer.memory().size(unit));
  convert(trainer.memory().parameters(unit), values);
  return std::ranges::none_of(values, [](float value) { return std::isnan(value); });
}

// When a unit is to be computed, its parameters have come, and nobody has waited for those of the next one.
TEST(ParameterGathererTest, WaitsForEachUnitWhenItIsNeeded) {
  std::atomic<int> waited = 0;
  run(
      [&](Trainer& trainer, UnitNeeded needed) {
        return [&waited, &trainer, needed = std::move(needed)](int unit) {
          const bool there = has_come(trainer, unit);
          needed(unit);
          EXPECT_TRUE(has_come(trainer, unit)) << "unit " << unit;
          if (there) return;
          ++waited;
          EXPECT_TRUE(unit == kLayout.head_unit() || !has_come(trainer, unit + 1)) << "unit " << unit;
        };
      },
      false,
      [](const Result<StepResult>& last) {
        ASSERT_TRUE(last.is_ok()) << last.status().message();
        EXPECT_FALSE(last.value().diverged);
      });
  // Every unit on both ranks in step 1. In step 0 all are there.
  EXPECT_EQ(waited, kLayout.world_size() * kLayout.num_units());
}

TEST(ParameterGathererTest, UnitsThatAreUsedBeforeTheyHaveComeSpoilTheStep) {
  run([](Trainer&, UnitNeeded needed) { return needed; }, true,
      [](const Result<StepResult>& last) {
        ASSERT_TRUE(last.is_ok()) << last.status().message();
        EXPECT_TRUE(last.value().diverged);
      });
}

TEST(ParameterGathererTest, AModelThatDoesNotWaitForAUnitIsAnError) {
  const FakeShape shape;
  for (const int left_out : {0, 2, kLayout.head_unit()}) {
    const Layout layout(4, {{{4}, 1, 3}}, RankOrder::kTpPpDp);
    ThreadWorld world(layout);
    FakeCompute fake(shape, layout.units_of({0, 0}));
    Asking compute(fake, [&](UnitNeeded needed) {
      return [left_out, needed = std::move(needed)](int unit) {
        if (unit != left_out) needed(unit);
      };
    });
    const auto messenger = world.messenger(0);
    auto trainer = make_trainer(layout, shape.vocab, compute, *messenger, options_of_shards());
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    const Result<StepResult> step = trainer.value()->step(0);
    ASSERT_FALSE(step.is_ok());
    EXPECT_EQ(step.status().message(),
              fmt::format("the model did not wait for the parameters of unit {}", left_out));
  }
}

}  // namespace
}  // namespace hdt::training::testing
