// delay_meter.h: how long it takes to learn that a chunk has come, the wait in the queue in front of it left
// out.
//
// The time from handing a chunk over to its acknowledgement has two queues in it: its own, behind what this
// end has under way, and that of the acknowledgement, behind what the peer has under way. A window must allow
// for the second without counting the first: with windows over the sum the end whose window is a little
// larger fills both, and the other one's NIC stands idle. So the peer says at what time by its own clock it
// has got a chunk. How much longer than the fastest one a chunk took there is its queue (as in LEDBAT, RFC
// 6817: clocks need not agree, as only differences count).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace hdt::transport {

// A time by somebody's monotonic clock, in units of 16 us modulo 2^16: of two within half a second the later
// one is known.
using Stamp = uint16_t;
inline constexpr int64_t kStampNs = 16'000;
inline Stamp stamp_of(int64_t time_ns) { return static_cast<Stamp>(time_ns / kStampNs); }

class DelayMeter {
 public:
  // A chunk handed over at `sent` had come at `there` by the peer's clock; `now` this end knows.
  void known(int64_t sent, Stamp there, int64_t now) {
    const auto way = static_cast<Stamp>(there - stamp_of(sent));  // and how far the clocks are apart
    remember(way, now);
    const int64_t round = now - sent;
    const int64_t queue = std::clamp<int64_t>(since(way, fastest()) * kStampNs, 0, round);
    const int64_t rest = std::min(round - queue, kMostNs);
    rest_ns_ = rest_ns_ < 0 ? rest : rest_ns_ + (rest - rest_ns_) / kSmoothed;
  }

  // Lately; 0: nothing is known.
  int64_t rest_ns() const { return std::max<int64_t>(rest_ns_, 0); }

 private:
  // The fastest way is looked for in so many stretches of time. Less would take a queue that lasts for a part
  // of the way; in more the clocks drift apart.
  static constexpr size_t kStretches = 8;
  static constexpr int64_t kStretchNs = kNsPerSecond;
  static constexpr int64_t kMostNs =
      8 * kNsPerMs;  // more comes from a peer that does not run, not from a queue
  static constexpr int64_t kSmoothed = 8;

  static int16_t since(Stamp later, Stamp earlier) { return static_cast<int16_t>(later - earlier); }

  void remember(Stamp way, int64_t now) {
    if (stretches_ == 0 || now - begun_ns_ >= kStretchNs) {
      // After a pause what was seen before it is too long ago.
      stretches_ = now - begun_ns_ >= 2 * kStretchNs ? 0 : stretches_;
      begun_ns_ = now;
      fastest_[next_++ % kStretches] = way;
      stretches_ = std::min(stretches_ + 1, kStretches);
      return;
    }
    Stamp& fastest = fastest_[(next_ - 1) % kStretches];
    if (since(way, fastest) < 0) fastest = way;
  }

  Stamp fastest() const {
    Stamp best = fastest_[(next_ - 1) % kStretches];
    for (size_t back = 2; back <= stretches_; ++back) {
      const Stamp other = fastest_[(next_ - back) % kStretches];
      if (since(other, best) < 0) best = other;
    }
    return best;
  }

  std::array<Stamp, kStretches> fastest_{};
  size_t next_ = 0;
  size_t stretches_ = 0;  // of fastest_, how many hold something
  int64_t begun_ns_ = 0;  // of the last one
  int64_t rest_ns_ = -1;
};

}  // namespace hdt::transport
