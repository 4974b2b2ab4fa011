// compute.h: what the engine needs of a model: the computation of one stage, on memory that the engine owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "training/engine/layout.h"

namespace hdt::training {

struct UnitSize {
  size_t elements = 0;
  size_t decayed = 0;  // the first `decayed` elements take weight decay (matrices do, norms do not)
};

struct LossSum {
  double loss = 0;  // summed over tokens, in nats
  int64_t tokens = 0;
};

class StageCompute {
 public:
  // Called with each unit of the stage, last first, as soon as its gradient is complete for this backward.
  using UnitDone = std::function<void(int unit)>;

  virtual ~StageCompute() = default;

  // The units of the stage. Those of a unit are the same whatever the layout.
  virtual UnitRange units() const = 0;
  virtual UnitSize unit_size(int unit) const = 0;
  // Uses this memory for the unit's parameters and gradients; it outlives the compute's use of it. Once per
  // unit.
  virtual void bind(int unit, std::span<float> parameters, std::span<float> gradients) = 0;
  // Writes start values, a function of (seed, unit) only.
  virtual void initialize(int unit, uint64_t seed) = 0;

  // Tokens of a sample: sequence_length inputs, then one that is only a target.
  virtual int sequence_length() const = 0;
  virtual int64_t vocab_size() const = 0;
  // Floats that go from stage to stage for this many tokens.
  virtual size_t activation_elements(size_t tokens) const = 0;

  // One micro-batch: `samples` holds whole samples (read by the first and last stage). `input` is empty on
  // the first stage, `output` on the last. What backward needs is kept under `slot`; so must be `input`.
  // Returns the loss on the last stage, else zeros.
  virtual LossSum forward(int slot, std::span<const int64_t> samples, std::span<const float> input,
                          std::span<float> output) = 0;
  // Adds to the gradients the derivative of the summed loss of the micro-batch in `slot`.
  virtual void backward(int slot, std::span<const float> output_gradient, std::span<float> input_gradient,
                        const UnitDone& unit_done) = 0;

  // Forward only, of one text of at most sequence_length tokens. The last stage fills `logits` (vocab_size)
  // for the token after the last.
  virtual void infer(std::span<const int64_t> tokens, std::span<const float> input, std::span<float> output,
                     std::span<float> logits) = 0;
};

}  // namespace hdt::training
