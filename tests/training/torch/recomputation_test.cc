// recomputation_test.cc: layers that are computed again for their backward: the same bits, and less memory;
// and the memory of a text that is generated.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/training/torch/small_stage.h"

namespace hdt::training::testing {
namespace {

constexpr int kAllLayers = 1000;

// The bytes of torch's tensors that this thread has allocated since the meter was made, and not freed.
// Torch's allocator calls it for each tensor. Used by the thread that made it.
class MemoryMeter {
 public:
  MemoryMeter()
      : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}
  int64_t live() const { return counter_->live; }
  int64_t peak() const { return counter_->peak; }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*memory*/, int64_t bytes, int64_t /*allocated*/, int64_t /*reserved*/,
                           c10::Device /*device*/) override {
      live += bytes;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t live = 0;
    int64_t peak = 0;
  };
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

// Runs the forwards of all micro-batches, then their backwards.
struct Pass {
  std::vector<std::vector<float>> outputs;
  std::vector<std::vector<float>> input_gradients;
  std::vector<std::vector<float>> parameter_gradients;
  std::vector<double> losses;
  std::vector<int> order;  // of the units that are done
  bool operator==(const Pass&) const = default;
};

struct Measured {
  Pass pass;
  int64_t kept = 0;    // bytes between forwards and backwards
  int64_t peak = 0;    // bytes, at any time
  int64_t behind = 0;  // bytes after the backwards
};

Measured run_stage(UnitRange units, const TorchStageOptions& options, int slots, bool split) {
  const ModelShape shape = small_shape();
  Stage stage(shape, units, 1, options);
  const std::vector<int64_t> tokens = samples(shape, 2);
  const size_t elements = stage.compute->activation_elements(0, 2 * shape.sequence_length);
  std::vector<float> gradient(elements);
  for (size_t i = 0; i < elements; ++i) gradient[i] = std::cos(static_cast<float>(i));
  if (units.end == shape.num_layers + 2) gradient.clear();
  // Each micro-batch has an input of its own, so that none can take the place of another.
  std::vector<std::vector<float>> inputs(slots, std::vector<float>(units.first == 0 ? 0 : elements));
  for (int slot = 0; slot < slots; ++slot) {
    for (size_t i = 0; i < inputs[slot].size(); ++i) inputs[slot][i] = std::sin(static_cast<float>(i + slot));
  }
  Measured result;
  Pass& pass = result.pass;
  pass.outputs.assign(slots, std::vector<float>(gradient.size()));
  pass.input_gradients = inputs;
  const auto done = [&](int unit) { pass.order.push_back(unit); };
  const MemoryMeter meter;
  for (int slot = 0; slot < slots; ++slot)
    pass.losses.push_back(
        stage.compute->forward(slot, {.samples = tokens}, inputs[slot], pass.outputs[slot]).loss);
  result.kept = meter.live();
  for (int slot = 0; slot < slots; ++slot) {
    if (split) {
      stage.compute->backward_input(slot, gradient, pass.input_gradients[slot]);
    } else {
      stage.compute->backward(slot, gradient, pass.input_gradients[slot], done);
    }
  }
  for (int slot = 0; slot < slots && split; ++slot) stage.compute->backward_weights(slot, done);
  result.peak = meter.peak();
  result.behind = meter.live();
  pass.parameter_gradients = stage.gradients;
  return result;
}

TEST(Recomputation, AnyNumberOfLayersMakesTheSameBits) {
  // The first units, layers between two stages, the last units, and all.
  for (const UnitRange units : {UnitRange{0, 3}, UnitRange{2, 4}, UnitRange{3, 6}, UnitRange{0, 6}}) {
    for (const bool split : {false, true}) {
      const Pass kept = run_stage(units, {}, 2, split).pass;
      EXPECT_EQ(kept.order.size(), 2U * units.size());
      for (const int recomputed : {1, 2, kAllLayers})
        EXPECT_EQ(run_stage(units, {.recomputed_layers = recomputed}, 2, split).pass, kept)
            << "units from " << units.first << ", " << recomputed << " recomputed, split " << split;
    }
  }
}

// A layer that is recomputed keeps the output of the one before, which is its input, and nothing else.
TEST(Recomputation, OnlyInputsAreKept) {
  const ModelShape shape = small_shape();
  const auto input_bytes =
      static_cast<int64_t>(2 * shape.sequence_length * shape.hidden_size * sizeof(float));
  // Three layers between two stages. The input of the first is the caller's memory.
  const UnitRange layers = {1, 4};
  for (const int slots : {1, 3})
    EXPECT_EQ(run_stage(layers, {.recomputed_layers = kAllLayers}, slots, false).kept,
              slots * 2 * input_bytes)
        << slots;
  // Each layer more saves the same, and the last one its output as well, which nobody in the stage reads.
  std::vector<int64_t> kept;
  for (int recomputed = 0; recomputed <= 3; ++recomputed)
    kept.push_back(run_stage(layers, {.recomputed_layers = recomputed}, 1, false).kept);
  const int64_t saved = kept[0] - kept[1];
  EXPECT_GT(saved, 10 * input_bytes);
  EXPECT_EQ(kept[1] - kept[2], saved);
  EXPECT_EQ(kept[2] - kept[3], saved + input_bytes);
}

TEST(Recomputation, OneLayerAtATimeIsInMemoryAgain) {
  for (const UnitRange units : {UnitRange{0, 4}, UnitRange{1, 5}}) {
    const Measured kept = run_stage(units, {}, 4, false);
    const Measured recomputed = run_stage(units, {.recomputed_layers = kAllLayers}, 4, false);
    // Three of the stage's 12 or 16 graphs at most: one, and what its forward and backward need meanwhile.
    EXPECT_LT(recomputed.peak, kept.peak / 4) << "units from " << units.first;
    EXPECT_EQ(recomputed.behind, kept.behind) << "units from " << units.first;
    // The weights' part of a backward in two needs the inputs of the products, recomputed or not.
    EXPECT_LT(run_stage(units, {.recomputed_layers = kAllLayers}, 1, true).kept,
              run_stage(units, {}, 1, true).kept / 4);
  }
}

// Losses, and the parameters of all ranks.
struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<std::vector<float>>> parameters;
  bool operator==(const Trained&) const = default;
};

Trained train_torch(const Layout& layout, ScheduleKind schedule, const TorchStageOptions& stage) {
  const ModelShape shape = small_shape();
  constexpr int64_t kSteps = 6;
  ThreadWorld world(layout);
  Trained trained;
  trained.parameters.resize(layout.world_size());
  TrainerOptions options;
  options.seed = 11;
  options.schedule = schedule;
  options.learning_rate = {.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 1, .total_steps = kSteps};
  options.bucket_elements = 10000;
  run_ranks(layout.world_size(), [&](int rank) {
    const auto compute = make_torch_stage(shape, layout.units_of(layout.position_of(rank)), stage);
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab_size, *compute, *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int64_t step = 0; step < kSteps; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      if (rank == 0) trained.losses.push_back(done.value().loss);
    }
    const UnitRange units = compute->units();
    for (int unit = units.first; unit < units.end; ++unit) {
      const std::span<float> final = trainer.value()->memory().parameters(unit).as<float>();
      trained.parameters[rank].emplace_back(final.begin(), final.end());
    }
  });
  return trained;
}

// Two replicas with unequal stages and batches. With one layer recomputed, a stage of three keeps the other
// two, and a stage of one keeps none.
TEST(Recomputation, UnequalRunsEndInTheSameBitsUnderEverySchedule) {
  set_torch_threads(1);
  const Layout layout(4, {{{3, 1}, 3, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  for (const ScheduleKind schedule : kScheduleKinds) {
    for (const DropoutRates dropout : {DropoutRates{}, DropoutRates{0.1, 0.1, 3}}) {
      const Trained kept = train_torch(layout, schedule, {.dropout = dropout});
      ASSERT_EQ(kept.losses.size(), 6U);
      EXPECT_NE(kept.losses.front(), kept.losses.back());
      const TorchStageOptions kinds[] = {{.recomputed_layers = 1, .dropout = dropout},
                                         {.recomputed_layers = kAllLayers, .dropout = dropout},
                                         {.recomputed_attentions = 1, .dropout = dropout},
                                         {.recomputed_attentions = kAllLayers, .dropout = dropout}};
      for (const TorchStageOptions& stage : kinds) {
        EXPECT_EQ(train_torch(layout, schedule, stage), kept)
            << schedule_name(schedule) << ", " << stage.recomputed_layers << " recomputed, dropout "
            << dropout.hidden;
      }
    }
  }
}

// Scores and probabilities of all heads are not kept. The bits are the same.
TEST(Recomputation, AttentionAloneKeepsNoScores) {
  const ModelShape shape = small_shape();
  const UnitRange layers = {1, 4};
  for (const bool split : {false, true}) {
    const Measured kept = run_stage(layers, {}, 2, split);
    const Measured recomputed = run_stage(layers, {.recomputed_attentions = kAllLayers}, 2, split);
    EXPECT_EQ(recomputed.pass, kept.pass);
    // At least the probabilities of two samples are saved, in each layer and micro-batch.
    const auto scores = static_cast<int64_t>(2 * shape.num_attention_heads * shape.sequence_length *
                                             shape.sequence_length * sizeof(float));
    EXPECT_LE(recomputed.kept, kept.kept - 2 * layers.size() * scores);
    EXPECT_EQ(recomputed.behind, kept.behind);
    // Of the first layer alone.
    const Measured first = run_stage(layers, {.recomputed_attentions = 1}, 2, split);
    EXPECT_EQ(first.pass, kept.pass);
    EXPECT_LE(first.kept, kept.kept - 2 * scores);
    EXPECT_GT(first.kept, recomputed.kept);
  }
}

// What a stage has more after a text's first token is what the check of memory has counted before.
TEST(KeysAndValues, TakeTheBytesThatAreKnownBeforehand) {
  ModelShape grouped = small_shape();
  grouped.num_query_groups = 2;
  ModelShape gpt2 = small_shape();
  gpt2.family = ModelFamily::kGpt2;
  for (const ModelShape& shape : {small_shape(), grouped, gpt2}) {
    for (const NumberType type : kNumberTypes) {
      SCOPED_TRACE(number_type_name(type));
      const auto stage = make_torch_stage(shape, {1, 3}, {.type = type});
      std::vector<TypedMemory> memory;
      const auto allocated = [&](size_t elements) {
        return memory.emplace_back(plain_memory(type, elements)).span();
      };
      for (const int unit : {1, 2}) {
        const size_t elements = elements_of(stage->tensors(unit));
        const TypedSpan parameters = allocated(elements);
        stage->bind(unit, parameters, allocated(elements));
        stage->initialize(unit, 1);
      }
      const TypedSpan input = allocated(stage->activation_elements(0, 1));
      const TypedSpan output = allocated(stage->activation_elements(2, 1));
      const std::vector<int64_t> token = {1};
      const MemoryMeter meter;
      stage->infer(token, 0, input, output, {});
      EXPECT_EQ(meter.live(), 2 * static_cast<int64_t>(key_value_bytes(shape, type)));
      stage->infer(token, 1, input, output, {});
      EXPECT_EQ(meter.live(), 2 * static_cast<int64_t>(key_value_bytes(shape, type)));
    }
  }
}

}  // namespace
}  // namespace hdt::training::testing
