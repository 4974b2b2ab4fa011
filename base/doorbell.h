// doorbell.h: an eventcount in shared memory. A ring means: something you may be waiting for has
// changed. While nobody sleeps, ringing costs a fence and a load, and no cache line moves. Only if
// somebody sleeps, a system call is made.
//
// A waiter announces itself (Sleeper), then looks at the data it waits for, and sleeps only if the data
// has not come. The ringer writes the data, then looks for announced sleepers. Each side writes its own
// variable and then reads the other's, with a sequentially consistent fence in between (Dekker's
// pattern): either the ringer sees the sleeper, or the sleeper sees the data. So no ring is lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace hdt {

// Lives in the memory that waiters and ringers share, on a cache line of its own. Zeroed memory is a
// valid doorbell. A process that shares the memory and writes other values into it can cause spurious
// wake-ups, or prevent wake-ups.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> count{0};     // rings while someone was announced; the futex
  std::atomic<uint32_t> sleepers{0};  // Sleepers that exist

  // Wakes all sleepers. Call it after the data was written. Any thread of any process that maps the
  // doorbell.
  void ring() {
    full_fence();
    if (sleepers.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  friend class Sleeper;
  // Orders the writes before it with the reads after it; pairs with the fence of the other side.
  void full_fence() {
#if defined(__SANITIZE_THREAD__)
    sleepers.fetch_add(0, std::memory_order_seq_cst);  // the thread sanitizer does not know fences
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
  // Counts the ring and wakes all who sleep on `count`.
  void wake();
};

// Announces, for as long as it lives, that this thread may go to sleep on a doorbell. The order is: make
// the Sleeper, look at the data, sleep() if the data has not come, look again. The doorbell must outlive
// it.
class Sleeper {
 public:
  explicit Sleeper(Doorbell& doorbell);
  // Moves the announcement; the one that was moved from must not sleep.
  Sleeper(Sleeper&& other) noexcept : doorbell_(other.doorbell_), seen_(other.seen_) {
    other.doorbell_ = nullptr;
  }
  Sleeper& operator=(Sleeper&&) = delete;
  ~Sleeper();
  // Returns when the doorbell has been rung since this Sleeper was made, at the deadline, or spuriously.
  // It returns at once if the ring came before the call. After a ring a new Sleeper is needed: this one
  // does not sleep again.
  void sleep(const Deadline& deadline) const;

 private:
  friend void sleep_on_any(std::span<const Sleeper> sleepers, const Deadline& deadline);
  Doorbell* doorbell_;
  uint32_t seen_;  // Doorbell::count when this was made
};

// The number of doorbells that one sleep may wait on: FUTEX_WAITV_MAX of the kernel.
inline constexpr size_t kMaxDoorbells = 128;
// Sleeps until one of several doorbells has been rung, until the deadline, or spuriously. Only the first
// kMaxDoorbells are slept on. A kernel before Linux 5.16, or a container whose system-call filter is older,
// has no futex_waitv: then the call sleeps on the first doorbell, for 1 ms at most, so that a ring of
// another one is seen that much later.
void sleep_on_any(std::span<const Sleeper> sleepers, const Deadline& deadline);

}  // namespace hdt
