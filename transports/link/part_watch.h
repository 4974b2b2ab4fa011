// part_watch.h: the part of a NIC on which a class can count for some time (docs/design/collectives.md,
// "Unequal links"). Whoever goes by it changes what is sent, on all nodes at once, so it must change seldom:
//
// - It has steps of an eighth. The part as it is now must be three quarters of a step or more away, and on
//   the same side for `wait` without a break, at first a second. Then the mean of that time is taken.
// - With every change `wait` doubles, up to 32 s. It is halved where nothing has changed for eight times as
//   long. So whatever happens, there are 6 changes and one more in each 16 s, at most.
// - Classes differ in their patience: their waits are longer by a factor from 1 to 2. Otherwise two that
//   watch each other could both give way, and both come back, at the same times for ever.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace hdt::transport {

// One per class on a NIC; used on the engine's thread. A pure state machine: times are monotonic, in ns, and
// given by the caller.
class PartWatch {
 public:
  // `patience`: 1 to 2, the factor of all waits.
  explicit PartWatch(double patience = 1)
      : least_wait_ns_(static_cast<int64_t>(patience * kLeastWaitNs)), wait_ns_(least_wait_ns_) {}

  static constexpr double kStep = 0.125;
  static constexpr double kNear = 0.75 * kStep;
  static constexpr int64_t kLeastWaitNs = kNsPerSecond;
  static constexpr int64_t kMostLeastWaits = 32;
  static constexpr int64_t kWaitsToHalve = 8;

  // From `since` to `now` the class could have had `part` of the NIC, 0 to 1. The stretches follow each
  // other.
  void look(double part, int64_t since, int64_t now) {
    if (changed_ns_ == kNotYet) changed_ns_ = since;
    if (wait_ns_ > least_wait_ns_ && now - changed_ns_ >= kWaitsToHalve * wait_ns_) {
      wait_ns_ /= 2;
      changed_ns_ = now;
    }
    const int side = part <= part_ - kNear ? -1 : part >= part_ + kNear ? 1 : 0;
    if (side != side_) {
      side_ = side;
      side_since_ns_ = since;
      sum_ = 0;
    }
    if (side == 0) return;
    sum_ += part * static_cast<double>(now - since);
    if (now - side_since_ns_ < wait_ns_) return;
    const double mean = sum_ / static_cast<double>(now - side_since_ns_);
    part_ = std::clamp(std::round(mean / kStep) * kStep, kStep, 1.0);
    wait_ns_ = std::min(2 * wait_ns_, kMostLeastWaits * least_wait_ns_);
    changed_ns_ = now;
    side_ = 0;
  }
  // At least a step, and at first 1.
  double part() const { return part_; }

 private:
  static constexpr int64_t kNotYet = INT64_MIN;

  const int64_t least_wait_ns_;
  double part_ = 1;
  int64_t wait_ns_;
  // When `part_` or `wait_ns_` changed last.
  int64_t changed_ns_ = kNotYet;
  // Whether the present part is near (0), or below or above, and since when.
  int side_ = 0;
  int64_t side_since_ns_ = 0;
  // The parts by time since then.
  double sum_ = 0;
};

}  // namespace hdt::transport
