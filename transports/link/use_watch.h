// use_watch.h: whether somebody uses a NIC so much, and for so long, that others should make room on other
// NICs (docs/design/collectives.md, "Unequal links"). Those who make room change what they send, on all nodes
// at once, so the answer must not change often:
//
// - Between "yes" and "no" is a gap: yes from a fifth of the NIC's time on, no below a tenth. Whoever sends
//   between the two leaves the answer as it is.
// - The use must have been beyond the gap for `wait`, at first a second, without a break.
// - With every change of the answer `wait` doubles, up to 32 s. It is halved where the answer has stood for
//   eight times as long. So whatever the use is, the answer changes 6 times and once more each 16 s, at most.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace hdt::transport {

// One per class on a NIC; used on the engine's thread. A pure state machine: times are monotonic, in ns, and
// given by the caller.
class UseWatch {
 public:
  // As fractions of the NIC's time. The gap between them is more than one group's parts can move another's
  // use, where nodes are alike.
  static constexpr double kMuch = 0.2;
  static constexpr double kLittle = 0.1;
  static constexpr int64_t kLeastWaitNs = kNsPerSecond;
  static constexpr int64_t kMostWaitNs = 32 * kNsPerSecond;
  static constexpr int64_t kWaitsToHalve = 8;

  // From `since` to `now` the NIC was used for the fraction `use` of the time. The stretches follow each
  // other.
  void look(double use, int64_t since, int64_t now) {
    if (changed_ns_ == kNotYet) changed_ns_ = since;
    if (wait_ns_ > kLeastWaitNs && now - changed_ns_ >= kWaitsToHalve * wait_ns_) {
      wait_ns_ /= 2;
      changed_ns_ = now;
    }
    const bool beyond = much_ ? use < kLittle : use >= kMuch;
    if (!beyond) {
      beyond_ns_ = kNotYet;
      return;
    }
    if (beyond_ns_ == kNotYet) beyond_ns_ = since;
    if (now - beyond_ns_ < wait_ns_) return;
    much_ = !much_;
    wait_ns_ = std::min(2 * wait_ns_, kMostWaitNs);
    changed_ns_ = now;
    beyond_ns_ = kNotYet;
  }
  // The answer.
  bool much() const { return much_; }

 private:
  static constexpr int64_t kNotYet = INT64_MIN;

  bool much_ = false;
  int64_t wait_ns_ = kLeastWaitNs;
  // When the answer or `wait_ns_` changed last.
  int64_t changed_ns_ = kNotYet;
  // Since when the use has been beyond the gap; kNotYet: it is not.
  int64_t beyond_ns_ = kNotYet;
};

}  // namespace hdt::transport
