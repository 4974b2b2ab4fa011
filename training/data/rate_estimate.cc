// rate_estimate.cc: three sums that decay together, so that their quotients are rates over the recent
// past.
#include "training/data/rate_estimate.h"

#include <cmath>

namespace hdt::training {

RateEstimate::RateEstimate(std::chrono::duration<double> half_life) : half_life_(half_life.count()) {}

void RateEstimate::add(std::chrono::duration<double> elapsed, int64_t tokens) {
  if (++added_ == 2) seconds_ = steps_ = tokens_ = 0;
  // All three sums lose the same share, so that long and short steps are weighed by their time.
  const double kept = std::exp2(-elapsed.count() / half_life_);
  seconds_ = seconds_ * kept + elapsed.count();
  steps_ = steps_ * kept + 1;
  tokens_ = tokens_ * kept + static_cast<double>(tokens);
}

std::optional<double> RateEstimate::tokens_per_second() const {
  if (seconds_ <= 0) return std::nullopt;
  return tokens_ / seconds_;
}

std::optional<double> RateEstimate::steps_per_second() const {
  if (seconds_ <= 0) return std::nullopt;
  return steps_ / seconds_;
}

}  // namespace hdt::training
