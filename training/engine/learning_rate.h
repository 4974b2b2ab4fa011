// learning_rate.h: linear warm-up, then a cosine from the peak down to the minimum.
#pragma once

#include <cstdint>

namespace hdt::training {

// The shape of the schedule.
struct LearningRateOptions {
  double peak = 1e-3;  // reached at the end of the warm-up
  double minimum = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;  // the minimum is reached at the last of them
};

// The learning rate of step 0, 1, .... From total_steps on it is the minimum.
double learning_rate(const LearningRateOptions& options, int64_t step);

}  // namespace hdt::training
