// doorbell.h: an eventcount in shared memory: "something you may be waiting for has changed". The waiter reads the
// count, looks at what it waits for, and sleeps only while the count is still the same; so no ring is lost.
// Ringing costs one atomic addition; a system call is made only when someone sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace hdt {

struct alignas(64) Doorbell {
  // Count of rings. Waiters pass the value they read *before* they looked at the data.
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> sleepers{0};

  // Call after the data was written.
  void ring();
  uint32_t read() const { return count.load(std::memory_order_seq_cst); }
  // Returns when count != seen, at the deadline, or spuriously.
  void sleep(uint32_t seen, const Deadline& deadline);
};

// Sleeps until one of several doorbells has been rung since its `seen` value (or deadline, or spuriously).
// At most kMaxDoorbells.
inline constexpr size_t kMaxDoorbells = 128;
struct DoorbellWait {
  Doorbell* doorbell;
  uint32_t seen;
};
void sleep_on_any(std::span<const DoorbellWait> waits, const Deadline& deadline);

}  // namespace hdt
