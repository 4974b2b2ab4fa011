// learning_rate.cc: the schedule of the learning rate (cosine: Loshchilov and Hutter 2017, "SGDR").
#include "training/engine/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hdt::training {

double learning_rate(const LearningRateOptions& options, int64_t step) {
  // Step 0 already has a rate above 0, and the last step of the warm-up has the peak.
  if (step < options.warmup_steps) {
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  const int64_t span = std::max<int64_t>(options.total_steps - options.warmup_steps, 1);
  const double done =
      std::min(static_cast<double>(step - options.warmup_steps + 1) / static_cast<double>(span), 1.0);
  return options.minimum + (options.peak - options.minimum) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace hdt::training
