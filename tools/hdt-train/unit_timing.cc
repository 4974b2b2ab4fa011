// unit_timing.cc: runs stages of one kind of unit, as the engine runs them, on random data.
#include "tools/hdt-train/unit_timing.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "base/median.h"
#include "training/engine/adamw.h"
#include "training/engine/slowed_compute.h"
#include "training/torch/torch_stage.h"

namespace hdt::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A measurement is repeated for kMeasuringTime, but at least and at most so often.
constexpr int kLeastRepetitions = 2;
constexpr int kMostRepetitions = 40;
constexpr std::chrono::milliseconds kMeasuringTime(200);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The bytes that malloc has given out, mapped blocks included. Tensors on the CPU come from there.
int64_t bytes_in_use() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Repeats `once` as the constants above say, after one run that warms up and is not measured.
template <typename Once>
void repeat(Once once) {
  once(false);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kMostRepetitions; ++i) {
    if (i >= kLeastRepetitions && Clock::now() - begin > kMeasuringTime) return;
    once(true);
  }
}

}  // namespace

void time_units(const training::ModelShape& shape, training::UnitRange units, int micro_batch_size,
                double slow_down, UnitTiming& timing) {
  std::unique_ptr<training::TextCompute> stage = training::make_torch_stage(shape, units);
  if (slow_down > 1) stage = training::make_slowed_compute(std::move(stage), slow_down);
  // A stage works on memory of its caller, as in the engine.
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> gradients;
  for (int unit = units.first; unit < units.end; ++unit) {
    parameters.emplace_back(training::elements_of(stage->tensors(unit)));
    gradients.emplace_back(training::elements_of(stage->tensors(unit)));
    stage->bind(unit, parameters.back(), gradients.back());
    stage->initialize(unit, 1);
  }
  // Always the same data, so that two profiles differ only by the machine.
  std::mt19937_64 random(1);
  std::vector<int64_t> samples(static_cast<size_t>(micro_batch_size) * (shape.sequence_length + 1));
  for (int64_t& token : samples) token = static_cast<int64_t>(random() % shape.vocab_size);
  // The first stage reads tokens instead of an input, and the last one computes the loss instead of an
  // output.
  const bool first = units.first == 0;
  const bool last = units.end == shape.num_layers + 2;
  const size_t elements =
      stage->activation_elements(units.first, static_cast<size_t>(micro_batch_size) * shape.sequence_length);
  std::normal_distribution<float> normal;
  const auto filled = [&](bool wanted) {
    std::vector<float> values(wanted ? elements : 0);
    for (float& value : values) value = normal(random);
    return values;
  };
  const std::vector<float> input = filled(!first);
  const std::vector<float> output_gradient = filled(!last);
  std::vector<float> output(last ? 0 : elements);
  std::vector<float> input_gradient(first ? 0 : elements);
  const std::span<const int64_t> read =
      first || last ? std::span<const int64_t>(samples) : std::span<const int64_t>();
  int64_t kept = 0;
  // One micro-batch forward and backward, as in a pipeline of one stage.
  repeat([&](bool measured) {
    // A stage keeps its activations from the forward to the backward, so the difference between is what
    // it keeps.
    const int64_t before = bytes_in_use();
    const Clock::time_point begin = Clock::now();
    stage->forward(0, read, input, output);
    const double forward_seconds = seconds_since(begin);
    kept = bytes_in_use() - before;
    const Clock::time_point turn = Clock::now();
    stage->backward(0, output_gradient, input_gradient, [](int) {});
    if (!measured) return;
    timing.forward.push_back(forward_seconds / units.size());
    timing.backward.push_back(seconds_since(turn) / units.size());
  });
  timing.activation_bytes = std::max<int64_t>(1, kept / units.size());
}

size_t unit_elements(const training::ModelShape& shape, int unit) {
  return training::elements_of(training::make_torch_stage(shape, {unit, unit + 1})->tensors(unit));
}

double time_update(size_t elements) {
  std::vector<float> parameters(elements, 0.1F);
  std::vector<float> gradients(elements);
  std::vector<float> first_moment(elements);
  std::vector<float> second_moment(elements);
  std::vector<double> times;
  double norms = 0;
  int64_t step = 0;
  repeat([&](bool measured) {
    const Clock::time_point begin = Clock::now();
    std::ranges::fill(gradients, 1e-3F);
    double norm = 0;
    for (const float gradient : gradients) norm += double{gradient} * gradient;
    // The norms are used below, so that the compiler cannot leave their computation out.
    norms += norm;
    training::adamw_update({parameters, gradients, first_moment, second_moment}, {}, ++step, 1e-3F,
                           norms > 0 ? 1.0F : 0.0F, true);
    if (measured) times.push_back(seconds_since(begin));
  });
  return median(times);
}

}  // namespace hdt::tools
