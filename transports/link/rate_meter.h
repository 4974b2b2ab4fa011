// rate_meter.h: how fast something carries: bytes acknowledged over the time with bytes under way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace hdt::transport {

class RateMeter {
 public:
  // `bytes` were acknowledged now; the oldest of them was handed over at `since`. What waits for work is not
  // slow, so time counts from when it could have begun with them.
  void acknowledged(uint64_t bytes, int64_t since, int64_t now) {
    busy_ns_ += static_cast<double>(std::max<int64_t>(now - std::max(since, last_ns_), 1));
    busy_bytes_ += static_cast<double>(bytes);
    last_ns_ = now;
    const double measured_ns = std::max(kMeasuredNs, static_cast<double>(now - since));
    if (busy_bytes_ == 0 || (ns_per_byte_ != 0 && busy_ns_ < measured_ns)) return;
    const double lately = busy_ns_ / busy_bytes_;
    ns_per_byte_ = ns_per_byte_ == 0 ? lately : (ns_per_byte_ + lately) / 2;
    recent_[next_++ % recent_.size()] = lately;
    busy_ns_ = busy_bytes_ = 0;
  }
  double ns_per_byte() const { return ns_per_byte_; }  // lately; 0: not known yet
  // The best of the last figures; 0: not known yet. What bounds bytes under way must go by this: where
  // acknowledgements came late for some other reason, a window by the rate that was seen would be too small
  // to see a better one, and shrink again.
  double best_ns_per_byte() const {
    return next_ == 0 ? 0 : *std::min_element(recent_.begin(), recent_.end());
  }
  int64_t last_ns() const { return last_ns_; }  // when something was acknowledged last

 private:
  // Time under way that one figure is taken over, and no less than an acknowledgement takes. These come in
  // bursts, behind chunks of the other direction: over less time a burst looks like a fast rail, which then
  // gets what others should carry.
  static constexpr double kMeasuredNs = 16e6;
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  static constexpr size_t kFigures = 4;

  // Not measured yet: worse than any.
  std::array<double, kFigures> recent_ = {kNone, kNone, kNone, kNone};
  size_t next_ = 0;
  int64_t last_ns_ = 0;
  double ns_per_byte_ = 0;
  double busy_ns_ = 0;     // since that was measured: time with bytes under way
  double busy_bytes_ = 0;  // and what was acknowledged in it
};

// Bytes that may be under way: what is carried in 2 ms, the queue that keeps a NIC busy, and in `rest_ns`,
// what an acknowledgement takes besides that queue (delay_meter.h). Every millisecond more delays the end of
// each piece by as much, twice in an allreduce, and notes on their way. The queue may have to be `times` as
// short.
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
