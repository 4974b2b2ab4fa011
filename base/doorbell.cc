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

// Shared (not FUTEX_PRIVATE) futexes: waiter and waker are different processes.
timespec absolute_time(const Deadline& deadline) {
  const int64_t ns = deadline.time_ns();
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace

void Doorbell::wake() {
  count.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Sleeper::Sleeper(Doorbell& doorbell) : doorbell_(&doorbell) {
  doorbell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  doorbell.full_fence();
  seen_ = doorbell.count.load(std::memory_order_seq_cst);
}

Sleeper::~Sleeper() {
  if (doorbell_ != nullptr) doorbell_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

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

void sleep_on_any(std::span<const Sleeper> sleepers, const Deadline& deadline) {
  std::array<futex_waitv, kMaxDoorbells> words{};
  const size_t used = std::min(sleepers.size(), kMaxDoorbells);
  for (size_t i = 0; i < used; ++i) {
    words[i].val = sleepers[i].seen_;
    words[i].uaddr = reinterpret_cast<uintptr_t>(&sleepers[i].doorbell_->count);
    words[i].flags = FUTEX_32;
  }
  const timespec until = deadline.is_never() ? timespec{} : absolute_time(deadline);
  ::syscall(SYS_futex_waitv, words.data(), used, 0, deadline.is_never() ? nullptr : &until, CLOCK_MONOTONIC);
}

}  // namespace hdt
