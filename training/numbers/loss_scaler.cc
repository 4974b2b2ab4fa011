// loss_scaler.cc: halves and doubles, so that the scale takes no digits from the gradients.
#include "training/numbers/loss_scaler.h"

#include <algorithm>

namespace hdt::training {

LossScaler::LossScaler(const LossScaleOptions& options) : options_(options) {
  state_.scale = options_.is_dynamic() ? std::max(options_.initial, options_.minimum) : options_.constant;
  state_.hysteresis_left = options_.hysteresis;
}

void LossScaler::restore(const LossScaleState& state) {
  if (state.scale == 0 || !options_.is_dynamic()) return;
  state_ = state;
  state_.scale = std::max(state_.scale, options_.minimum);
}

void LossScaler::succeeded() {
  if (!options_.is_dynamic() || ++state_.good_steps < options_.window) return;
  state_.good_steps = 0;
  state_.hysteresis_left = options_.hysteresis;
  state_.scale *= 2;
}

// The hysteresis comes back with the next growth only.
bool LossScaler::overflowed() {
  const bool falls = state_.hysteresis_left <= 1;
  if (!options_.is_dynamic() || (falls && state_.scale <= options_.minimum)) return false;
  state_.good_steps = 0;
  state_.hysteresis_left = std::max<int64_t>(state_.hysteresis_left - 1, 0);
  if (falls) state_.scale = std::max(state_.scale / 2, options_.minimum);
  return true;
}

}  // namespace hdt::training
