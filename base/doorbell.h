// doorbell.h: an eventcount in shared memory: "something you may be waiting for has changed". Ringing costs a
// fence and a load while nobody sleeps, and no cache line moves; a system call is made only when someone
// does.
//
// A waiter announces itself (Sleeper), then looks at what it waits for, and sleeps only if it has not come.
// Both sides write theirs, then read the other's, with a sequentially consistent fence between: either the
// ringer sees the sleeper, or the sleeper sees what was written. So no ring is lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace hdt {

struct alignas(64) Doorbell {
  std::atomic<uint32_t> count{0};     // rings while someone was announced
  std::atomic<uint32_t> sleepers{0};  // announced

  // Call after the data was written.
  void ring() {
    full_fence();
    if (sleepers.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  friend class Sleeper;
  void full_fence() {
#if defined(__SANITIZE_THREAD__)
    sleepers.fetch_add(0, std::memory_order_seq_cst);  // the thread sanitizer does not know fences
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
  void wake();
};

// Announces that this thread may go to sleep on a doorbell, for as long as it lives. Look at the data after
// making it.
class Sleeper {
 public:
  explicit Sleeper(Doorbell& doorbell);
  Sleeper(Sleeper&& other) noexcept : doorbell_(other.doorbell_), seen_(other.seen_) {
    other.doorbell_ = nullptr;
  }
  Sleeper& operator=(Sleeper&&) = delete;
  ~Sleeper();
  // Returns when the doorbell has been rung since this was made, at the deadline, or spuriously.
  void sleep(const Deadline& deadline) const;

 private:
  friend void sleep_on_any(std::span<const Sleeper> sleepers, const Deadline& deadline);
  Doorbell* doorbell_;
  uint32_t seen_;
};

// Sleeps until one of several doorbells has been rung (or the deadline, or spuriously). Only the first
// kMaxDoorbells are slept on.
inline constexpr size_t kMaxDoorbells = 128;
void sleep_on_any(std::span<const Sleeper> sleepers, const Deadline& deadline);

}  // namespace hdt
