// learning_rate.h: linear warm-up, then from the peak down to the minimum.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace hdt::training {

// The way down. kConstant stays at the peak.
enum class LearningRateDecay { kCosine, kLinear, kConstant };
// "cosine", "linear" or "constant", as in Megatron.
const char* learning_rate_decay_name(LearningRateDecay decay);
// kInvalidArgument lists the names.
Result<LearningRateDecay> learning_rate_decay_of(std::string_view name);

// The shape of the schedule.
struct LearningRateOptions {
  double peak = 1e-3;  // reached at the end of the warm-up
  double minimum = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;  // the minimum is reached at the last of them
  LearningRateDecay decay = LearningRateDecay::kCosine;
};

// The learning rate of step 0, 1, .... From total_steps on it is the minimum, unless it is constant.
double learning_rate(const LearningRateOptions& options, int64_t step);

}  // namespace hdt::training
