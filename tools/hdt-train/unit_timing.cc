// unit_timing.cc: runs stages of one kind of unit, as the engine runs them, on random data.
#include "tools/hdt-train/unit_timing.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "tools/hdt-train/memory_check.h"
#include "training/engine/adamw.h"
#include "training/engine/parallel.h"
#include "training/engine/slowed_compute.h"
#include "training/numbers/exact_sum.h"
#include "training/torch/torch_stage.h"

namespace hdt::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A measurement is repeated for kMeasuringTime, but at least and at most so often.
constexpr int kLeastRepetitions = 3;
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

// Repeats `once` as the constants above say, after one run that warms up and is not measured. Returns how
// often it was measured.
template <typename Once>
int repeat(Once once) {
  once(false);
  const Clock::time_point begin = Clock::now();
  int repetitions = 0;
  while (repetitions < kMostRepetitions) {
    if (repetitions >= kLeastRepetitions && Clock::now() - begin > kMeasuringTime) break;
    once(true);
    ++repetitions;
  }
  return repetitions;
}

}  // namespace

void time_units(const training::ModelShape& shape, training::UnitRange units,
                const training::NumberTypes& types, int micro_batch_size, double slow_down,
                bool attention_again, UnitTiming& timing) {
  const training::TorchStageOptions options = {.recomputed_attentions = attention_again ? units.size() : 0,
                                               .type = types.parameters};
  std::unique_ptr<training::TextCompute> stage = training::make_torch_stage(shape, units, options);
  if (slow_down > 1) stage = training::make_slowed_compute(std::move(stage), slow_down);
  // A stage works on memory of its caller, as in the engine.
  std::vector<training::TypedMemory> memory;
  size_t bound_elements = 0;
  std::vector<int> bound = units.numbers();
  if (stage->has_tied_unit()) bound.push_back(training::kTiedUnit);
  for (const int unit : bound) {
    const size_t count = training::elements_of(stage->tensors(unit));
    const auto allocated = [&](training::NumberType type) {
      return memory.emplace_back(training::plain_memory(type, count)).span();
    };
    const training::TypedSpan parameters = allocated(types.parameters);
    stage->bind(unit, parameters, allocated(types.gradients));
    bound_elements += count;
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
  const auto activations = [&](bool wanted) {
    return training::plain_memory(types.parameters, wanted ? elements : 0);
  };
  const auto filled = [&](bool wanted) {
    std::vector<float> values(wanted ? elements : 0);
    for (float& value : values) value = normal(random);
    training::TypedMemory made = activations(wanted);
    training::convert(values, made.span());
    return made;
  };
  const training::TypedMemory input = filled(!first);
  const training::TypedMemory output_gradient = filled(!last);
  const training::TypedMemory output = activations(!last);
  const training::TypedMemory input_gradient = activations(!first);
  const std::span<const int64_t> read =
      first || last ? std::span<const int64_t>(samples) : std::span<const int64_t>();
  int64_t kept = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  // One micro-batch forward and backward, as in a pipeline of one stage.
  const int repetitions = repeat([&](bool measured) {
    // A stage keeps its activations from the forward to the backward, so the difference between is what
    // it keeps.
    const int64_t before = bytes_in_use();
    const Clock::time_point begin = Clock::now();
    stage->forward(0, {.samples = read}, input.span(), output.span());
    const double forward = seconds_since(begin);
    kept = bytes_in_use() - before;
    const Clock::time_point turn = Clock::now();
    stage->backward(0, output_gradient.span(), input_gradient.span(), [](int) {});
    if (!measured) return;
    forward_seconds += forward;
    backward_seconds += seconds_since(turn);
  });
  timing.forward.push_back(forward_seconds / repetitions / units.size());
  timing.backward.push_back(backward_seconds / repetitions / units.size());
  kept -= static_cast<int64_t>(bytes_of_parameter(types).copies * static_cast<double>(bound_elements));
  timing.activation_bytes = std::max<int64_t>(1, kept / units.size());
}

size_t unit_elements(const training::ModelShape& shape, int unit) {
  const auto stage = training::make_torch_stage(shape, {unit, unit + 1});
  const size_t tied = stage->has_tied_unit() ? training::elements_of(stage->tensors(training::kTiedUnit)) : 0;
  return training::elements_of(stage->tensors(unit)) + tied;
}

namespace {

// In pieces, as the trainer and its optimizer work, with states of type T.
template <typename T>
double time_update_in(size_t elements, const training::NumberTypes& types) {
  const training::TypedMemory parameters = training::plain_memory(types.parameters, elements);
  const training::TypedMemory gradients = training::plain_memory(types.gradients, elements);
  const bool has_masters = types.parameters != training::NumberTypeOf<T>::value;
  std::vector<T> own_master(has_masters ? elements : 0);
  const std::span<T> master = has_masters ? std::span(own_master) : parameters.span().as<T>();
  std::ranges::fill(master, T{0.1F});
  std::vector<T> first_moment(elements);
  std::vector<T> second_moment(elements);
  std::vector<T> converted;
  double seconds = 0;
  double norms = 0;
  int64_t step = 0;
  const int repetitions = repeat([&](bool measured) {
    const Clock::time_point begin = Clock::now();
    double norm = 0;
    training::ExactSum exact;
    training::with_elements(gradients.span(), [&](auto values) {
      using Element = typename decltype(values)::value_type;
      std::ranges::fill(values, Element{1e-3F});
      for (const Element value : values) {
        const double gradient = static_cast<training::ComputedAs<Element>>(value);
        norm += gradient * gradient;
        // The trainer's norm in fp64 is an exact sum.
        if constexpr (std::is_same_v<Element, double>) exact.add(gradient * gradient);
      }
    });
    // The norms are used below, so that the compiler cannot leave their computation out.
    norms += norm + exact.numbers()[0];
    ++step;
    for (size_t at = 0; at < elements; at += training::kPieceElements) {
      const size_t count = std::min(training::kPieceElements, elements - at);
      const training::TypedSpan piece = gradients.span().subspan(at, count);
      std::span<const T> used;
      if (types.gradients == training::NumberTypeOf<T>::value) {
        used = piece.as<T>();
      } else {
        converted.resize(count);
        training::convert(piece, converted);
        used = converted;
      }
      training::adamw_update(
          training::AdamWSpan<T>{master.subspan(at, count), used, std::span(first_moment).subspan(at, count),
                                 std::span(second_moment).subspan(at, count)},
          {}, step, 1e-3, norms > 0 ? 1 : 0, true);
      if (has_masters) training::convert(master.subspan(at, count), parameters.span().subspan(at, count));
    }
    if (measured) seconds += seconds_since(begin);
  });
  return seconds / repetitions;
}

}  // namespace

double time_update(size_t elements, const training::NumberTypes& types) {
  return training::state_type_of(types.parameters) == training::NumberType::kFloat64
             ? time_update_in<double>(elements, types)
             : time_update_in<float>(elements, types);
}

}  // namespace hdt::tools
