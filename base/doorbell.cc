#include "base/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <ctime>

namespace hdt {

namespace {

// Shared (not FUTEX_PRIVATE) futexes: waiter and waker are different processes.
timespec absolute_time(const Deadline& deadline) {
  const int64_t ns = deadline.time_ns();
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace

// Both sides do "write mine, then read the other's" with sequentially consistent atomics: either the ringer sees
// the sleeper, or the sleeper's futex call sees the new count.
void Doorbell::ring() {
  count.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) {
    ::syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Doorbell::sleep(uint32_t seen, const Deadline& deadline) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (deadline.is_never()) {
    ::syscall(SYS_futex, &count, FUTEX_WAIT_BITSET, seen, nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
  } else {
    const timespec until = absolute_time(deadline);
    ::syscall(SYS_futex, &count, FUTEX_WAIT_BITSET, seen, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void sleep_on_any(std::span<const DoorbellWait> waits, const Deadline& deadline) {
  std::array<futex_waitv, kMaxDoorbells> words{};
  const size_t used = std::min(waits.size(), kMaxDoorbells);
  for (size_t i = 0; i < used; ++i) {
    waits[i].doorbell->sleepers.fetch_add(1, std::memory_order_seq_cst);
    words[i].val = waits[i].seen;
    words[i].uaddr = reinterpret_cast<uintptr_t>(&waits[i].doorbell->count);
    words[i].flags = FUTEX_32;
  }
  const timespec until = deadline.is_never() ? timespec{} : absolute_time(deadline);
  ::syscall(SYS_futex_waitv, words.data(), used, 0, deadline.is_never() ? nullptr : &until, CLOCK_MONOTONIC);
  for (size_t i = 0; i < used; ++i) waits[i].doorbell->sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace hdt
