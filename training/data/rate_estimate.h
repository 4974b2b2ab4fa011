// rate_estimate.h: how fast training is at present: steps and tokens per second over the recent past.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace hdt::training {

// Sums of time, steps and tokens in which what lies `half_life` back counts half. The first step is
// slower than the others (memory is touched for the first time, connections are made) and is forgotten
// as soon as there is a second one.
class RateEstimate {
 public:
  explicit RateEstimate(std::chrono::duration<double> half_life = std::chrono::seconds(10));
  // Adds a step that took `elapsed`.
  void add(std::chrono::duration<double> elapsed, int64_t tokens);
  // Nothing before a step took a measurable time.
  std::optional<double> tokens_per_second() const;
  std::optional<double> steps_per_second() const;

 private:
  double half_life_;
  double seconds_ = 0;
  double steps_ = 0;
  double tokens_ = 0;
  int64_t added_ = 0;  // steps
};

}  // namespace hdt::training
