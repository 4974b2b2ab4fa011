// heartbeat.h: whether a thread still passes its loop. A thread that has nothing to do sleeps, and is
// healthy: who asks wakes it by its mailbox afterwards, so that it passes once more. Two threads: the one
// that is asked, and one that asks.
#pragma once

#include <atomic>
#include <cstdint>

namespace hdt::daemon {

class Heartbeat {
 public:
  // The thread, at the top of its loop. Costs two loads where nobody has asked.
  void pass() {
    const uint64_t asked = asked_.load(std::memory_order_acquire);
    if (passed_.load(std::memory_order_relaxed) != asked) passed_.store(asked, std::memory_order_release);
  }
  // Who asks. Nothing has been asked at first, so that all is answered.
  bool has_passed() const {
    return passed_.load(std::memory_order_acquire) == asked_.load(std::memory_order_relaxed);
  }
  void ask() { asked_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<uint64_t> asked_{0};
  std::atomic<uint64_t> passed_{0};
};

}  // namespace hdt::daemon
