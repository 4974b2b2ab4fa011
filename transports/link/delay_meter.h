// delay_meter.h: measures how long it takes until an acknowledgement of a fragment is known, without the time
// that the fragment waits in the queue in front of it.
//
// The time from handing a fragment over to its acknowledgement contains two queues. The fragment waits behind
// what this end has under way; the acknowledgement waits behind what the peer has under way. A window must
// allow for the second queue without counting the first. With windows over the sum, the end whose window is a
// little larger fills both queues, and the other end's NIC stands idle. So the peer sends the time, by its
// own clock, at which a fragment came. A fragment's queue is the time by which its way took longer than the
// fastest way, as in LEDBAT (RFC 6817). The two clocks need not agree, as only differences count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace hdt::transport {

// A time by the monotonic clock of either end, in units of 16 us modulo 2^16. It wraps after 1.05 s; of two
// stamps within half a second of each other it is known which one is later.
using Stamp = uint16_t;
inline constexpr int64_t kStampNs = 16'000;
inline Stamp stamp_of(int64_t time_ns) { return static_cast<Stamp>(time_ns / kStampNs); }

// One per rail, used on the engine's thread. Times are monotonic, in ns.
//
//   way   = arrival by the peer's clock - handing over by this clock = time on the way + offset of the clocks
//   queue = way - the fastest way lately; the offset drops out
//   rest  = (now - handing over) - queue = the fastest way there, and the whole way back
class DelayMeter {
 public:
  // A fragment was handed over at `sent` and arrived at `there` by the peer's clock. This end has learned
  // that at `now`. `there` is foreign: a wrong value makes the queue wrong, but the result stays in [0,
  // kMostNs].
  void known(int64_t sent, Stamp there, int64_t now) {
    const auto way = static_cast<Stamp>(there - stamp_of(sent));
    remember(way, now);
    const int64_t round = now - sent;
    const int64_t queue = std::clamp<int64_t>(since(way, fastest()) * kStampNs, 0, round);
    const int64_t rest = std::min(round - queue, kMostNs);
    rest_ns_ = rest_ns_ < 0 ? rest : rest_ns_ + (rest - rest_ns_) / kSmoothed;
  }

  // The smoothed rest in ns; 0: nothing is known.
  int64_t rest_ns() const { return std::max<int64_t>(rest_ns_, 0); }

 private:
  // The fastest way is looked for in the latest 8 stretches of 1 s. In a shorter time a queue that never
  // empties would be taken for a part of the way; in a longer time the clocks drift apart.
  static constexpr size_t kStretches = 8;
  static constexpr int64_t kStretchNs = kNsPerSecond;
  // A longer rest comes from a peer that does not run, not from a queue.
  static constexpr int64_t kMostNs = 8 * kNsPerMs;
  static constexpr int64_t kSmoothed = 8;  // a new figure counts 1/8, as TCP's round-trip time (RFC 6298)

  // By how much `later` is after `earlier`, in stamps; negative if it is before.
  static int16_t since(Stamp later, Stamp earlier) { return static_cast<int16_t>(later - earlier); }

  // Keeps the minimum of each stretch, in a ring.
  void remember(Stamp way, int64_t now) {
    if (stretches_ == 0 || now - begun_ns_ >= kStretchNs) {
      // After a pause of a whole stretch the older minima are dropped: the clocks have drifted since.
      stretches_ = now - begun_ns_ >= 2 * kStretchNs ? 0 : stretches_;
      begun_ns_ = now;
      fastest_[next_++ % kStretches] = way;
      stretches_ = std::min(stretches_ + 1, kStretches);
      return;
    }
    Stamp& fastest = fastest_[(next_ - 1) % kStretches];
    if (since(way, fastest) < 0) fastest = way;
  }

  // The minimum of all stretches that hold something. remember() was called before.
  Stamp fastest() const {
    Stamp best = fastest_[(next_ - 1) % kStretches];
    for (size_t back = 2; back <= stretches_; ++back) {
      const Stamp other = fastest_[(next_ - back) % kStretches];
      if (since(other, best) < 0) best = other;
    }
    return best;
  }

  std::array<Stamp, kStretches> fastest_{};  // a ring; the current stretch is at next_ - 1
  size_t next_ = 0;
  size_t stretches_ = 0;  // how many entries of fastest_ hold something
  int64_t begun_ns_ = 0;  // when the current stretch began
  int64_t rest_ns_ = -1;  // smoothed; -1: nothing is known
};

}  // namespace hdt::transport
