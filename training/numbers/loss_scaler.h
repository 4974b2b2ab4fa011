// loss_scaler.h: the factor by which a loss is multiplied before its backward, so that gradients in fp16 are
// neither too large nor too small for it.
#pragma once

#include <cstdint>

namespace hdt::training {

// Megatron's flags, with its defaults.
struct LossScaleOptions {
  double constant = 0;          // above 0: always this scale
  double initial = 4294967296;  // 2^32
  double minimum = 1;           // the scale never falls below it
  int64_t window = 1000;        // so many steps without an overflow double the scale
  int64_t hysteresis = 2;       // so many overflows are needed to halve it for the first time
  bool is_dynamic() const { return constant == 0; }
};

// All that the next steps depend on; part of a checkpoint.
struct LossScaleState {
  double scale = 0;             // 0: none was in use
  int64_t good_steps = 0;       // without an overflow, since the last one or since the scale has grown
  int64_t hysteresis_left = 0;  // overflows until the scale is halved; at 0 and 1 the next one does it
  int64_t skipped_steps = 0;    // since the start of training; the trainer counts them
  bool operator==(const LossScaleState&) const = default;
};

// The scale of a run, as Megatron's dynamic one. All ranks have the same state, as they see the same
// overflows. A value of the trainer's, used on its thread.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);
  // Goes on from a state. A scale of it is taken if it is not 0 and the options name no constant one.
  void restore(const LossScaleState& state);

  const LossScaleState& state() const { return state_; }
  double scale() const { return state_.scale; }
  // The gradients of a step are finite.
  void succeeded();
  // They are not, and the step is skipped; the scale may fall. False: it cannot, as it is constant or at its
  // minimum. Then nothing has changed, and no further step would be better.
  bool overflowed();

 private:
  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace hdt::training
