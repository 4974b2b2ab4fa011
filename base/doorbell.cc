// doorbell.cc: futex calls behind doorbell.h. Waiter and ringer may be different processes, so the
// futexes are shared ones (without FUTEX_PRIVATE_FLAG). The kernel compares `count` with the value that
// the Sleeper saw and sleeps only if they are equal, all in one step; so a ring between the look and the
// sleep is not lost.
#include "base/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>

namespace hdt {

namespace {

// FUTEX_WAIT_BITSET and futex_waitv take an absolute time of CLOCK_MONOTONIC, which is now_ns()'s clock.
timespec absolute_time(const Deadline& deadline) {
  const int64_t ns = deadline.time_ns();
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace

// The count is changed before the wake call: a waiter that is about to sleep then finds another value
// and does not sleep.
void Doorbell::wake() {
  count.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The order matters. The announcement comes first, then the fence that pairs with ring()'s, then the
// count: a ring after the fence changes the count that is read here or later, or comes from a ringer
// whose data the caller's next look will see.
Sleeper::Sleeper(Doorbell& doorbell) : doorbell_(&doorbell) {
  doorbell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  doorbell.full_fence();
  seen_ = doorbell.count.load(std::memory_order_seq_cst);
}

Sleeper::~Sleeper() {
  if (doorbell_ != nullptr) doorbell_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// FUTEX_WAIT_BITSET instead of FUTEX_WAIT, because only the former takes an absolute time. The result is not
// looked at: time over, woken, interrupted and "value has changed" all mean that the caller looks again.
void Sleeper::sleep(const Deadline& deadline) const {
  if (deadline.is_never()) {
    ::syscall(SYS_futex, &doorbell_->count, FUTEX_WAIT_BITSET, seen_, nullptr, nullptr,
              FUTEX_BITSET_MATCH_ANY);
  } else {
    const timespec until = absolute_time(deadline);
    ::syscall(SYS_futex, &doorbell_->count, FUTEX_WAIT_BITSET, seen_, &until, nullptr,
              FUTEX_BITSET_MATCH_ANY);
  }
}

// The same for several futexes at once. The kernel checks all values before it sleeps.
void sleep_on_any(std::span<const Sleeper> sleepers, const Deadline& deadline) {
  if (sleepers.size() == 1) return sleepers[0].sleep(deadline);
  std::array<futex_waitv, kMaxDoorbells> words{};
  const size_t used = std::min(sleepers.size(), kMaxDoorbells);
  for (size_t i = 0; i < used; ++i) {
    words[i].val = sleepers[i].seen_;
    words[i].uaddr = reinterpret_cast<uintptr_t>(&sleepers[i].doorbell_->count);
    words[i].flags = FUTEX_32;
  }
  const timespec until = deadline.is_never() ? timespec{} : absolute_time(deadline);
  const long woken = ::syscall(SYS_futex_waitv, words.data(), used, 0, deadline.is_never() ? nullptr : &until,
                               CLOCK_MONOTONIC);
  // ENOSYS: an old kernel. EPERM: a filter that does not know the call.
  if (woken < 0 && (errno == ENOSYS || errno == EPERM) && used > 0)
    sleepers[0].sleep(Deadline::earlier(deadline, Deadline::after_ms(1)));
}

}  // namespace hdt
