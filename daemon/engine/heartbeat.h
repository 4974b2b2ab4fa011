// heartbeat.h: whether a thread still passes its loop. A thread that has nothing to do sleeps, and is
// healthy. So whoever asks wakes the thread through its mailbox after ask(), which lets it pass once
// more; if it has not passed when it is asked about later, it hangs.
//
// Two threads: the one that is asked, and one that asks. No locks, since the thread may hang with any of
// them.
#pragma once

#include <atomic>
#include <cstdint>

namespace hdt::daemon {

// Owned by the thread that is asked.
class Heartbeat {
 public:
  // Called by the thread at the top of its loop. Costs two loads if nobody has asked.
  void pass() {
    const uint64_t asked = asked_.load(std::memory_order_acquire);
    if (passed_.load(std::memory_order_relaxed) != asked) passed_.store(asked, std::memory_order_release);
  }
  // Called by whoever asks: the thread has passed its loop since the last ask(). True before the first.
  bool has_passed() const {
    return passed_.load(std::memory_order_acquire) == asked_.load(std::memory_order_relaxed);
  }
  // The thread must be woken afterwards.
  void ask() { asked_.fetch_add(1, std::memory_order_release); }

 private:
  // how often somebody has asked, and the value of that which the thread has seen
  std::atomic<uint64_t> asked_{0};
  std::atomic<uint64_t> passed_{0};
};

}  // namespace hdt::daemon
