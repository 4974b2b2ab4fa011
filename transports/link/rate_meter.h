// rate_meter.h: measures how fast a rail or a NIC carries data, as bytes acknowledged over the time in which
// bytes were under way; and the window that follows from it. docs/design/link.md has the measurements behind
// the constants.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace hdt::transport {

// One per rail, and one per NIC that is shared; used on the engine's thread. Times are monotonic, in ns. The
// figures are in ns per byte, so that a size times a figure is a time; a smaller figure is a faster rail.
class RateMeter {
 public:
  // `bytes` were acknowledged at `now`; the oldest of them was handed over at `since`. A rail without work is
  // not slow, so the time counts from `since` or from the acknowledgement before, whichever is later.
  void acknowledged(uint64_t bytes, int64_t since, int64_t now) {
    busy_ns_ += static_cast<double>(std::max<int64_t>(now - std::max(since, last_ns_), 1));
    busy_bytes_ += static_cast<double>(bytes);
    last_ns_ = now;
    // A figure is complete after 16 ms of busy time, or after the time that this acknowledgement took if that
    // is longer. The first figure is taken at once, as no window is known before it.
    const double measured_ns = std::max(kMeasuredNs, static_cast<double>(now - since));
    if (busy_bytes_ == 0 || (ns_per_byte_ != 0 && busy_ns_ < measured_ns)) return;
    const double lately = busy_ns_ / busy_bytes_;
    ns_per_byte_ = ns_per_byte_ == 0 ? lately : (ns_per_byte_ + lately) / 2;
    recent_[next_++ % recent_.size()] = lately;
    busy_ns_ = busy_bytes_ = 0;
  }
  double ns_per_byte() const { return ns_per_byte_; }  // lately; 0: not known yet
  // The best of the latest kFigures figures; 0: not known yet. A bound on the bytes under way must go by this
  // one. Where acknowledgements come late for another reason, the measured rate is too small. A window by
  // that rate would be too small to show a better one, and would shrink again and again.
  double best_ns_per_byte() const {
    return next_ == 0 ? 0 : *std::min_element(recent_.begin(), recent_.end());
  }
  int64_t last_ns() const { return last_ns_; }  // when something was acknowledged last; 0: never

 private:
  // The busy time that one figure covers. Acknowledgements come in bursts, behind fragments of the other
  // direction. Over less time a burst looks like a fast rail, which then gets what others should carry.
  static constexpr double kMeasuredNs = 16e6;
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  static constexpr size_t kFigures = 4;

  // The latest figures, a ring. kNone, worse than any figure, stands where none was taken yet.
  std::array<double, kFigures> recent_ = {kNone, kNone, kNone, kNone};
  size_t next_ = 0;
  int64_t last_ns_ = 0;
  double ns_per_byte_ = 0;
  double busy_ns_ = 0;     // since the latest figure: the time with bytes under way
  double busy_bytes_ = 0;  // and the bytes acknowledged in that time
};

// The window: how many bytes may be under way. It is what is carried in 2 ms, the queue that keeps a NIC
// busy, and in `rest_ns`, the time that an acknowledgement takes besides that queue (delay_meter.h). Every
// millisecond more delays the end of each piece of a call by as much, twice in an allreduce, and the messages
// between engines as well. `times` (at least 1) divides the queue; NicShare uses it beside latency classes.
// `ns_per_byte` 0: not known.
inline uint64_t window_of(double ns_per_byte, int64_t rest_ns = 0, uint64_t times = 1) {
  constexpr double kQueueNs = 2e6;
  constexpr uint64_t kLeastWindow = 32 << 10;
  constexpr uint64_t kMostWindow = 16 << 20;
  constexpr uint64_t kFirstWindow = 512 << 10;  // before the rate is known
  if (ns_per_byte == 0) return kFirstWindow / times;
  return std::clamp(static_cast<uint64_t>(
                        (kQueueNs / static_cast<double>(times) + static_cast<double>(rest_ns)) / ns_per_byte),
                    kLeastWindow / times, kMostWindow);
}

}  // namespace hdt::transport
