// compute.h: what the engine needs of a model: the computation of one stage, on memory that the engine
// owns. Implementations: libtorch (training/torch), callers of hdt/train.h (training/api), plain C++
// (tests).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "training/engine/layout.h"
#include "training/engine/tensor_info.h"
#include "training/numbers/number_type.h"

namespace hdt::training {

// A loss that is summed and not averaged, so that parts of a batch can be added up whatever their sizes.
struct LossSum {
  double loss = 0;  // summed over tokens, in nats
  int64_t tokens = 0;
};

// The part of the global batch that one forward() computes. The numbers of step and sample are the same in
// every layout, so a compute can derive from them what depends on chance.
struct MicroBatch {
  int64_t step = 0;
  int64_t first_sample = 0;  // the number of its first sample in the global batch; the others follow it
  // Tokens of whole samples, one after the other. Empty on a stage that is neither first nor last, unless it
  // reads_tokens().
  std::span<const int64_t> samples = {};
  // The last stage's backward of this micro-batch begins with it: gradients are those of the summed loss
  // times this factor. forward() returns the loss without it.
  double loss_factor = 1;
  // The parameters of the stage's units may still be on their way from the ranks that have updated them. If
  // it is set, it returns when those of `unit` have come.
  std::function<void(int unit)> unit_needed = {};

  // forward() calls it with each unit, first one first, before it reads the unit's parameters.
  void need(int unit) const {
    if (unit_needed) unit_needed(unit);
  }
};

// The model as one rank has it. Made by the program and used by one thread. The order of calls: bind() and
// initialize() for every unit; then for each micro-batch forward() and later backward(), or its two parts.
// Several micro-batches may be between the two, each in a slot of its own. Parameters and activations are of
// one type(), tokens are int64.
class StageCompute {
 public:
  // Called with each unit of the stage, last first, as soon as its gradient is complete for this backward.
  using UnitDone = std::function<void(int unit)>;

  virtual ~StageCompute() = default;

  // The type of parameters, of activations and of their gradients. The same on all ranks.
  virtual NumberType type() const { return NumberType::kFloat32; }
  // The units of the stage. A unit's parameters are the same whatever the layout.
  virtual UnitRange units() const = 0;
  // Whether it also has kTiedUnit, because it has the embedding or the head of a model that ties them. That
  // unit is bound and initialized as others are, but not reported to UnitDone: a backward adds to its
  // gradients before it reports the first of units().
  virtual bool has_tied_unit() const { return false; }
  // A unit's tensors in the order in which they lie in its memory, without gaps.
  virtual std::vector<TensorInfo> tensors(int unit) const = 0;
  // Lets the compute use this memory for the unit's parameters and gradients, both as long as its tensors
  // together. Parameters are of type(). Gradients are of type() or fp32: what a backward computes is added to
  // them in their own type. To be called once for each unit. The memory must outlive the compute's use of it.
  virtual void bind(int unit, TypedSpan parameters, TypedSpan gradients) = 0;
  // Writes start values, which are a function of (seed, unit) only, so that every layout starts alike.
  virtual void initialize(int unit, uint64_t seed) = 0;

  // Whether a stage that is neither first nor last reads the tokens of its samples, too.
  virtual bool reads_tokens() const { return false; }
  // A sample has sequence_length() + 1 tokens: so many inputs, then one that is a target only.
  virtual int sequence_length() const = 0;
  // The number of elements that `unit` hands to the next one for this many tokens. Asked for the last unit of
  // the stage, and for the one before its first.
  virtual size_t activation_elements(int unit, size_t tokens) const = 0;

  // Computes one micro-batch, and calls batch.need() for each unit in turn. The first stage reads the inputs
  // of its samples, the last one the targets. `input` is empty on the first stage, `output` on the last. The
  // state that backward() needs is kept under `slot`; the samples' tokens and `input` must stay unchanged
  // until then, too. Returns the loss on the last stage, else zeros.
  virtual LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) = 0;
  // As forward() between two steps, when no micro-batch is in flight, and without a backward to come. By
  // default forward() in slot 0; a compute that keeps much for a backward leaves that out here.
  virtual LossSum evaluate(std::span<const int64_t> samples, ConstTypedSpan input, TypedSpan output) {
    return forward(0, {.samples = samples}, input, output);
  }
  // Adds the derivative of the summed loss of the micro-batch in `slot`, times its loss factor, to the
  // gradients. `output_gradient` is empty on the last stage, `input_gradient` on the first. `unit_done` is
  // called from inside.
  virtual void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                        const UnitDone& unit_done) = 0;

  // backward() in two parts, for schedules that send the gradient on before they compute that of the weights
  // (splits_backward() in schedules.h). A compute without them says so here, and such a schedule is refused.
  virtual bool has_split_backward() const { return false; }
  // The first part: computes `input_gradient`. It may add to gradients of parameters, too. The state of
  // `slot` and `output_gradient` must stay until the second part.
  virtual void backward_input(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient);
  // The second part: after it the gradients are those that backward() would have made, to the last bit.
  virtual void backward_weights(int slot, const UnitDone& unit_done);
};

// A stage of a model that continues a text (generator.h).
class TextCompute : public StageCompute {
 public:
  virtual int64_t vocab_size() const = 0;
  // Forward only, of `tokens`, which come at `position` of one text: so many tokens were given before, by
  // earlier calls, and the stage keeps what it needs of them (keys and values). `position` is at most the
  // number of tokens given so far; what was given from there on is forgotten, and 0 begins another text. The
  // text has at most sequence_length() tokens. Every stage gets all tokens; `input` and `output` are those of
  // `tokens`. The last stage fills `logits` (vocab_size() floats) for the token after the last one.
  // Parameters must not change between the calls for one text.
  virtual void infer(std::span<const int64_t> tokens, int64_t position, ConstTypedSpan input,
                     TypedSpan output, std::span<float> logits) = 0;
};

}  // namespace hdt::training
