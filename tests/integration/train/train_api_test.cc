// train_api_test.cc: models of a caller's own in every type of numbers (hdt/train.h), against the same
// training in double without the engine.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hdt/train.h"
#include "tests/integration/communicator/rank_threads.h"
#include "training/numbers/number_type.h"

namespace hdt::testing {
namespace {

using training::NumberType;
using training::NumberTypes;

constexpr int kLayers = 2;
constexpr int kUnits = kLayers + 2;
constexpr size_t kWidth = 3;
constexpr int kBatch = 8;
constexpr double kRate = 0.05;

double input_of(int64_t sample, size_t i) {
  return 0.25 + static_cast<double>((sample * 7 + static_cast<int64_t>(i) * 3) % 8) / 8;
}
double start_of(int unit, size_t i) { return 0.75 + 0.125 * unit + 0.0625 * static_cast<double>(i); }
double target_of(double input) { return 2 * input; }

// The model: unit after unit multiplies element by element with its parameters; the loss is the square of
// what is missing to the target. Trained in double, in one piece.
class Reference {
 public:
  Reference() {
    for (int unit = 0; unit < kUnits; ++unit) {
      for (size_t i = 0; i < kWidth; ++i) weights_[unit][i] = start_of(unit, i);
    }
  }
  // The mean loss before the update.
  double step(int64_t step) {
    double loss = 0;
    double gradients[kUnits][kWidth] = {};
    for (int64_t sample = step * kBatch; sample < (step + 1) * kBatch; ++sample) {
      for (size_t i = 0; i < kWidth; ++i) {
        double product = input_of(sample, i);
        for (const auto& unit : weights_) product *= unit[i];
        const double error = product - target_of(input_of(sample, i));
        loss += error * error;
        for (int unit = 0; unit < kUnits; ++unit)
          gradients[unit][i] += 2 * error * product / weights_[unit][i];
      }
    }
    for (int unit = 0; unit < kUnits; ++unit) {
      for (size_t i = 0; i < kWidth; ++i) weights_[unit][i] -= kRate * gradients[unit][i] / kBatch;
    }
    return loss / kBatch;
  }
  double weight(int unit, size_t i) const { return weights_[unit][i]; }

 private:
  double weights_[kUnits][kWidth];
};

// A stage of that model. Everything is computed in double, and rounded where it is handed on or kept.
class Stage {
 public:
  Stage(const NumberTypes& types, const hdtTrainPlace_t& place) : types_(types), place_(place) {}

  hdtTrainStage_t functions() {
    const bool first = place_.stage == 0;
    const bool last = place_.stage + 1 == place_.stages;
    return {
        .context = this,
        .unit_elements = elements_.data(),
        .input_elements = first ? 0 : kWidth,
        .output_elements = last ? 0 : kWidth,
        .forward =
            [](void* context, int slot, const int64_t* samples, size_t count, const void* input, void* output,
               double* loss, int64_t* tokens) {
              return static_cast<Stage*>(context)->forward(slot, samples, count, input, output, loss, tokens);
            },
        .backward =
            [](void* context, int slot, const void* output_gradient, void* input_gradient, double loss_factor,
               hdtTrainUnitDone_t unit_done, void* engine) {
              return static_cast<Stage*>(context)->backward(slot, output_gradient, input_gradient,
                                                            loss_factor, unit_done, engine);
            },
        .update = [](void* context, double scale) { return static_cast<Stage*>(context)->update(scale); }};
  }
  // Takes the engine's memory, and writes the start values.
  void bind(hdtTrainer_t trainer) {
    for (int unit = place_.first_unit; unit < place_.end_unit; ++unit) {
      void* parameters = nullptr;
      void* gradients = nullptr;
      ASSERT_EQ(hdtTrainUnitMemory(trainer, unit, &parameters, &gradients), HDT_SUCCESS)
          << hdtTrainGetLastError();
      parameters_[unit] = {types_.parameters, static_cast<std::byte*>(parameters), kWidth};
      gradients_[unit] = {types_.gradients, static_cast<std::byte*>(gradients), kWidth};
      std::vector<double> start(kWidth);
      for (size_t i = 0; i < kWidth; ++i) start[i] = start_of(unit, i);
      training::convert(start, parameters_[unit]);
    }
  }
  std::vector<double> parameters(int unit) const { return read(parameters_.at(unit)); }
  int updates() const { return updates_; }

 private:
  static std::vector<double> read(training::ConstTypedSpan values) {
    std::vector<double> read(values.size());
    training::convert(values, read);
    return read;
  }
  static void add(training::TypedSpan sum, const std::vector<double>& added) {
    std::vector<double> values = read(sum);
    for (size_t i = 0; i < values.size(); ++i) values[i] += added[i];
    training::convert(values, sum);
  }
  training::TypedSpan activations(void* memory, size_t count) const {
    return {types_.parameters, static_cast<std::byte*>(memory), count * kWidth};
  }
  training::ConstTypedSpan activations(const void* memory, size_t count) const {
    return {types_.parameters, static_cast<const std::byte*>(memory), count * kWidth};
  }

  int forward(int slot, const int64_t* samples, size_t count, const void* input, void* output, double* loss,
              int64_t* tokens) {
    // By unit what it was handed, and then what the last one hands on.
    std::vector<std::vector<double>>& flow = flows_[slot];
    flow.assign(1, std::vector<double>(count * kWidth));
    if (input != nullptr) {
      flow[0] = read(activations(input, count));
    } else {
      for (size_t i = 0; i < flow[0].size(); ++i) flow[0][i] = input_of(samples[i / kWidth], i % kWidth);
    }
    for (int unit = place_.first_unit; unit < place_.end_unit; ++unit) {
      const std::vector<double> weights = parameters(unit);
      std::vector<double> next = flow.back();
      for (size_t i = 0; i < next.size(); ++i) next[i] *= weights[i % kWidth];
      flow.push_back(std::move(next));
    }
    if (output != nullptr) {
      training::convert(flow.back(), activations(output, count));
      return 0;
    }
    *loss = 0;
    *tokens = static_cast<int64_t>(count);
    for (size_t i = 0; i < flow.back().size(); ++i) {
      // From here on it is the error.
      flow.back()[i] -= target_of(input_of(samples[i / kWidth], i % kWidth));
      *loss += flow.back()[i] * flow.back()[i];
    }
    return 0;
  }

  int backward(int slot, const void* output_gradient, void* input_gradient, double loss_factor,
               hdtTrainUnitDone_t unit_done, void* engine) {
    const std::vector<std::vector<double>>& flow = flows_.at(slot);
    const size_t count = flow[0].size() / kWidth;
    std::vector<double> gradient;
    if (output_gradient != nullptr) {
      gradient = read(activations(output_gradient, count));
    } else {
      for (const double error : flow.back()) gradient.push_back(2 * error * loss_factor);
    }
    for (int unit = place_.end_unit - 1; unit >= place_.first_unit; --unit) {
      const std::vector<double>& handed = flow[static_cast<size_t>(unit - place_.first_unit)];
      const std::vector<double> weights = parameters(unit);
      std::vector<double> of_weights(kWidth);
      for (size_t i = 0; i < gradient.size(); ++i) {
        of_weights[i % kWidth] += gradient[i] * handed[i];
        gradient[i] *= weights[i % kWidth];
      }
      add(gradients_.at(unit), of_weights);
      unit_done(engine, unit);
    }
    if (input_gradient != nullptr) training::convert(gradient, activations(input_gradient, count));
    return 0;
  }

  int update(double scale) {
    ++updates_;
    for (const auto& [unit, parameters] : parameters_) {
      std::vector<double> change = read(gradients_.at(unit));
      for (double& value : change) value *= -kRate * scale;
      add(parameters, change);
    }
    return 0;
  }

  NumberTypes types_;
  hdtTrainPlace_t place_;
  const std::vector<size_t> elements_ = std::vector<size_t>(kUnits, kWidth);
  std::map<int, training::TypedSpan> parameters_;  // by unit
  std::map<int, training::TypedSpan> gradients_;
  std::map<int, std::vector<std::vector<double>>> flows_;  // by slot
  int updates_ = 0;
};

// Two replicas: one of one stage with 3 micro-batches, and one of two stages, on two nodes, with 1.
class Layout {
 public:
  Layout() {
    layout_.num_layers = kLayers;
    layout_.hetero_pipeline_stages = splits_;
    layout_.hetero_pipeline_stages_count = 2;
    layout_.use_tp_pp_dp_mapping = 1;
    layout_.micro_batch_size = 2;
    layout_.num_micro_batches_per_dp = {counts_, 4};
    layout_.global_batch_size = kBatch;
  }
  const hdtTrainLayout_t* get() const { return &layout_; }

 private:
  static constexpr int kFirst[] = {1, 2};
  static constexpr int kSecond[] = {2, 1, 1};
  static constexpr int counts_[] = {1, 3, 1, 1};
  const hdtTrainRow_t splits_[2] = {{kFirst, 2}, {kSecond, 3}};
  hdtTrainLayout_t layout_ = {};
};
const Placement kPlacement = {0, 0, 1};

hdtTrainConfig_t config_of(hdtDataType_t parameters, hdtDataType_t gradients) {
  hdtTrainConfig_t config = HDT_TRAIN_CONFIG_INIT;
  config.parameter_type = parameters;
  config.gradient_type = gradients;
  return config;
}

struct Trained {
  std::vector<hdtTrainStep_t> steps;            // as rank 0 saw them
  std::vector<std::vector<double>> parameters;  // by unit, of the second replica
  std::vector<int> updates;                     // by rank
};

Trained train(const hdtTrainConfig_t& config, const NumberTypes& types, int64_t steps) {
  Trained trained;
  trained.parameters.resize(kUnits);
  trained.updates.resize(kPlacement.size());
  std::mutex mutex;
  Nodes::instance().run(kPlacement, [&](Rank& rank) {
    const Layout layout;
    hdtTrainPlace_t place;
    ASSERT_EQ(hdtTrainPlaceOf(layout.get(), rank.ranks, rank.rank, &place), HDT_SUCCESS)
        << hdtTrainGetLastError();
    Stage stage(types, place);
    const hdtTrainStage_t functions = stage.functions();
    hdtTrainer_t trainer = nullptr;
    ASSERT_EQ(hdtTrainCreate(rank.comm, layout.get(), &functions, &config, &trainer), HDT_SUCCESS)
        << hdtTrainGetLastError();
    stage.bind(trainer);
    for (int64_t step = 0; step < steps; ++step) {
      hdtTrainStep_t done;
      ASSERT_EQ(hdtTrainStep(trainer, step, &done), HDT_SUCCESS) << hdtTrainGetLastError();
      if (rank.rank == 0) trained.steps.push_back(done);
    }
    const std::lock_guard lock(mutex);
    trained.updates[static_cast<size_t>(rank.rank)] = stage.updates();
    if (place.replica == 1) {
      for (int unit = place.first_unit; unit < place.end_unit; ++unit)
        trained.parameters[static_cast<size_t>(unit)] = stage.parameters(unit);
    }
    hdtTrainDestroy(trainer);
  });
  return trained;
}

// Of the reference, whose steps are those that were not skipped.
void expect_training(const Trained& trained, double relative) {
  Reference reference;
  int updates = 0;
  double first = 0;
  double last = 0;
  for (size_t step = 0; step < trained.steps.size(); ++step) {
    const hdtTrainStep_t& done = trained.steps[step];
    EXPECT_EQ(done.tokens, kBatch);
    EXPECT_EQ(done.diverged, 0);
    if (done.skipped) continue;
    last = reference.step(static_cast<int64_t>(step));
    if (updates++ == 0) first = last;
    EXPECT_NEAR(done.loss, last, relative * first) << step;
  }
  EXPECT_GT(updates, 20);
  EXPECT_LT(last, 0.5 * first);
  for (const int of_rank : trained.updates) EXPECT_EQ(of_rank, updates);
  for (int unit = 0; unit < kUnits; ++unit) {
    const std::vector<double>& parameters = trained.parameters[static_cast<size_t>(unit)];
    ASSERT_EQ(parameters.size(), kWidth);
    for (size_t i = 0; i < kWidth; ++i) EXPECT_NEAR(parameters[i], reference.weight(unit, i), 2 * relative);
  }
}

TEST(TrainApi, TrainsInEveryTypeOfNumbers) {
  using enum NumberType;
  expect_training(train(config_of(HDT_FLOAT64, HDT_FLOAT64), {kFloat64, kFloat64}, 30), 1e-12);
  expect_training(train(config_of(HDT_FLOAT32, HDT_FLOAT32), {kFloat32, kFloat32}, 30), 1e-5);
  expect_training(train(config_of(HDT_BFLOAT16, HDT_FLOAT32), {kBFloat16, kFloat32}, 30), 0.05);
  expect_training(train(config_of(HDT_BFLOAT16, HDT_BFLOAT16), {kBFloat16, kBFloat16}, 30), 0.05);
}

// From the default scale on, gradients in fp16 are infinite for some steps, in which nobody updates.
TEST(TrainApi, InFp16TheLossIsScaledAndStepsAreSkipped) {
  const NumberTypes types = {NumberType::kFloat16, NumberType::kFloat16};
  const Trained dynamic = train(config_of(HDT_FLOAT16, HDT_FLOAT16), types, 60);
  expect_training(dynamic, 0.01);
  EXPECT_EQ(dynamic.steps.front().loss_scale, 4294967296.0);
  EXPECT_EQ(dynamic.steps.front().skipped, 1);
  EXPECT_EQ(dynamic.steps.back().skipped, 0);
  EXPECT_LT(dynamic.steps.back().loss_scale, 4294967296.0);

  hdtTrainConfig_t constant = config_of(HDT_FLOAT16, HDT_FLOAT32);
  constant.loss_scale = 64;
  const Trained scaled = train(constant, {NumberType::kFloat16, NumberType::kFloat32}, 30);
  expect_training(scaled, 0.01);
  EXPECT_EQ(scaled.steps.front().loss_scale, 64);
}

// The scale may also be one for a type that needs none; the norm is that of the true gradients.
TEST(TrainApi, AScaleInFp64ChangesNothingButRounding) {
  const NumberTypes types = {NumberType::kFloat64, NumberType::kFloat64};
  hdtTrainConfig_t config = config_of(HDT_FLOAT64, HDT_FLOAT64);
  config.clip_gradient_norm = 1;
  const Trained plain = train(config, types, 30);
  config.loss_scale = 1024;
  const Trained scaled = train(config, types, 30);
  for (size_t step = 0; step < 30; ++step) {
    EXPECT_NEAR(scaled.steps[step].loss, plain.steps[step].loss, 1e-12) << step;
    EXPECT_NEAR(scaled.steps[step].gradient_norm, plain.steps[step].gradient_norm, 1e-12) << step;
  }
  EXPECT_GT(plain.steps.front().gradient_norm, 1);
}

// The result and the message of a trainer that is not made, on each rank; no rank waits for another.
std::vector<std::pair<hdtResult_t, std::string>> refusals(
    const std::function<hdtTrainConfig_t(int rank)>& config_of_rank) {
  std::vector<std::pair<hdtResult_t, std::string>> refused(kPlacement.size());
  Nodes::instance().run(kPlacement, [&](Rank& rank) {
    const Layout layout;
    hdtTrainPlace_t place;
    ASSERT_EQ(hdtTrainPlaceOf(layout.get(), rank.ranks, rank.rank, &place), HDT_SUCCESS);
    Stage stage({}, place);
    const hdtTrainStage_t functions = stage.functions();
    const hdtTrainConfig_t config = config_of_rank(rank.rank);
    hdtTrainer_t trainer = nullptr;
    const hdtResult_t result = hdtTrainCreate(rank.comm, layout.get(), &functions, &config, &trainer);
    refused[static_cast<size_t>(rank.rank)] = {result, hdtTrainGetLastError()};
    hdtTrainDestroy(trainer);
  });
  return refused;
}

TEST(TrainApi, WrongSettingsAreRefused) {
  const auto expect_refused = [](const std::string& reason,
                                 const std::function<void(hdtTrainConfig_t&)>& set) {
    hdtTrainConfig_t config = HDT_TRAIN_CONFIG_INIT;
    set(config);
    for (const auto& [result, message] : refusals([&](int) { return config; })) {
      EXPECT_EQ(result, HDT_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(message.substr(0, ("the config: " + reason).size()), "the config: " + reason);
    }
  };
  expect_refused("size is 8; expected", [](auto& config) { config.size = 8; });
  expect_refused("parameter_type is 6 and gradient_type 4; expected HDT_FLOAT32",
                 [](auto& config) { config.parameter_type = HDT_INT8; });
  expect_refused("gradients in fp32 of parameters in fp64; expected fp64 or the parameters' type",
                 [](auto& config) { config.parameter_type = HDT_FLOAT64; });
  expect_refused("gradients in bf16 of parameters in fp16; expected fp32", [](auto& config) {
    config.parameter_type = HDT_FLOAT16;
    config.gradient_type = HDT_BFLOAT16;
  });
  expect_refused("clip_gradient_norm is -1; expected 0 or more",
                 [](auto& config) { config.clip_gradient_norm = -1; });
  expect_refused("loss_scale is -2; expected 0, or", [](auto& config) { config.loss_scale = -2; });
  const auto in_fp16 = [&](const std::string& reason, const std::function<void(hdtTrainConfig_t&)>& set) {
    expect_refused(reason, [&](auto& config) {
      config.parameter_type = HDT_FLOAT16;
      set(config);
    });
  };
  in_fp16("min_loss_scale is 2 and initial_loss_scale 1; expected", [](auto& config) {
    config.min_loss_scale = 2;
    config.initial_loss_scale = 1;
  });
  in_fp16("min_loss_scale is 0 and", [](auto& config) { config.min_loss_scale = 0; });
  in_fp16("loss_scale_window is 0 and", [](auto& config) { config.loss_scale_window = 0; });
  in_fp16("loss_scale_window is 1000 and loss_scale_hysteresis 0",
          [](auto& config) { config.loss_scale_hysteresis = 0; });
}

TEST(TrainApi, SettingsThatDifferAreNamedOnEveryRank) {
  const auto expect_named = [](const std::string& name, const std::function<void(hdtTrainConfig_t&)>& set) {
    for (const auto& [result, message] : refusals([&](int rank) {
           hdtTrainConfig_t config = HDT_TRAIN_CONFIG_INIT;
           if (rank == 1) set(config);
           return config;
         })) {
      EXPECT_EQ(result, HDT_ERR_MISMATCH) << message;
      EXPECT_EQ(message.find("the config: " + name + " is "), 0) << message;
    }
  };
  expect_named("parameter_type", [](auto& config) { config.parameter_type = HDT_BFLOAT16; });
  expect_named("clip_gradient_norm", [](auto& config) { config.clip_gradient_norm = 1; });
  expect_named("loss_scale", [](auto& config) { config.loss_scale = 2; });
}

}  // namespace
}  // namespace hdt::testing
