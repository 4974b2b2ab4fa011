// clock.h: monotonic time in nanoseconds, and deadlines. Every wait in HDT takes a Deadline, so that
// time is taken once at the outermost call and inner waits cannot add up to more.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace hdt {

inline constexpr int64_t kNsPerUs = 1'000;
inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerSecond = 1'000'000'000;

// Nanoseconds since an arbitrary start. The value never goes back. All processes of a node read the same
// clock, so times in shared memory can be compared; times of different nodes cannot.
inline int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNsPerSecond + time.tv_nsec;
}

// A point in monotonic time, or never. A value type. Additions saturate, so a huge timeout is the same
// as none.
class Deadline {
 public:
  // Never expires.
  static Deadline never() { return Deadline(kNever); }
  // At a time of now_ns(). The largest int64_t means never.
  static Deadline at_ns(int64_t time_ns) { return Deadline(time_ns); }
  // `delay_ns` from now. A negative delay gives a deadline that has expired already.
  static Deadline after_ns(int64_t delay_ns) {
    const int64_t now = now_ns();
    return Deadline(delay_ns > kNever - now ? kNever : now + delay_ns);
  }
  // `delay_ms` from now; a negative delay counts as 0.
  static Deadline after_ms(int64_t delay_ms) {
    return delay_ms > kNever / kNsPerMs ? never() : after_ns(delay_ms < 0 ? 0 : delay_ms * kNsPerMs);
  }

  bool is_never() const { return time_ns_ == kNever; }
  bool expired() const { return !is_never() && now_ns() >= time_ns_; }
  // In the time of now_ns(); the largest int64_t for never().
  int64_t time_ns() const { return time_ns_; }

  // Time left in ns: 0 when expired, the largest int64_t for never().
  int64_t remaining_ns() const {
    if (is_never()) return kNever;
    const int64_t now = now_ns();
    return now >= time_ns_ ? 0 : time_ns_ - now;
  }

  // The timeout for poll() and epoll_wait() in ms: -1 for never(). Otherwise the time left is rounded
  // up, so that the wait does not end before the deadline and the caller does not spin through the last
  // fraction of a millisecond.
  int poll_timeout_ms() const {
    if (is_never()) return -1;
    const int64_t remaining = remaining_ns();
    const int64_t ms = remaining / kNsPerMs + (remaining % kNsPerMs != 0 ? 1 : 0);
    return ms > std::numeric_limits<int>::max() ? std::numeric_limits<int>::max() : static_cast<int>(ms);
  }

  // The one that comes first; never() is later than any other.
  static Deadline earlier(Deadline a, Deadline b) { return a.time_ns_ < b.time_ns_ ? a : b; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  explicit Deadline(int64_t time_ns) : time_ns_(time_ns) {}
  int64_t time_ns_;
};

}  // namespace hdt
