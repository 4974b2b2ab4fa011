// clock.h: monotonic time in nanoseconds, and deadlines. Every wait in HDT takes a Deadline.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace hdt {

inline constexpr int64_t kNsPerUs = 1'000;
inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerSecond = 1'000'000'000;

// Time since an arbitrary start; never goes back, the same clock in all processes of a node.
inline int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNsPerSecond + time.tv_nsec;
}

// A point in monotonic time. Additions saturate, so a huge timeout is the same as none.
class Deadline {
 public:
  static Deadline never() { return Deadline(kNever); }
  static Deadline at_ns(int64_t time_ns) { return Deadline(time_ns); }
  static Deadline after_ns(int64_t delay_ns) {
    const int64_t now = now_ns();
    return Deadline(delay_ns > kNever - now ? kNever : now + delay_ns);
  }
  static Deadline after_ms(int64_t delay_ms) {
    return delay_ms > kNever / kNsPerMs ? never() : after_ns(delay_ms < 0 ? 0 : delay_ms * kNsPerMs);
  }

  bool is_never() const { return time_ns_ == kNever; }
  bool expired() const { return !is_never() && now_ns() >= time_ns_; }
  int64_t time_ns() const { return time_ns_; }

  // 0 when expired; the largest value for never().
  int64_t remaining_ns() const {
    if (is_never()) return kNever;
    const int64_t now = now_ns();
    return now >= time_ns_ ? 0 : time_ns_ - now;
  }

  // For poll and epoll_wait: -1 for never(), otherwise rounded up, so that the wait does not end too early.
  int poll_timeout_ms() const {
    if (is_never()) return -1;
    const int64_t remaining = remaining_ns();
    const int64_t ms = remaining / kNsPerMs + (remaining % kNsPerMs != 0 ? 1 : 0);
    return ms > std::numeric_limits<int>::max() ? std::numeric_limits<int>::max() : static_cast<int>(ms);
  }

  static Deadline earlier(Deadline a, Deadline b) { return a.time_ns_ < b.time_ns_ ? a : b; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  explicit Deadline(int64_t time_ns) : time_ns_(time_ns) {}
  int64_t time_ns_;
};

}  // namespace hdt
