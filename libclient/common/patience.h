// patience.h: when a rank that waits for other nodes stops looking and sleeps.
//
// Between two looks a waiter gives up its core (sched_yield()). Where the core has nothing else to do, or only
// the engine that the rank waits for, that is cheaper than to sleep and to be woken. Where more threads can
// run than there are cores it is not: ranks that wait hand the core to each other, each a change of thread in
// vain, and the engines that could end the wait come to run the later. There a rank sleeps until its engine
// wakes it, once.
//
// A rank tells the two apart by how often it lost its core in vain. So nobody need know what else runs on the
// machine: other nodes of the group, other jobs, or the processes that prepare a job's data.
// docs/notes/performance-2026.md has the measurements.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.h"

namespace hdt::client {

// What one thread has learned of its core. Used by that thread only.
class Patience {
 public:
  // Whoever was away for so long has lost its core to another thread. A yield to nobody takes 0.2 to 1 us, and
  // the shortest one to somebody is two changes of thread.
  static constexpr int64_t kLostCoreNs = 2 * kNsPerUs;
  // How often a thread may lose its core in one wait. Two nodes of one rank each, on a core each, do so twice
  // for 8 bytes and four times for 64 KiB.
  static constexpr int kLosses = 8;
  // The number of waits after it in which the thread sleeps without giving way at all. The next one tries
  // again.
  static constexpr int kWaitsWithout = 8;

  // Begins a wait: something has come, and the thread waits for the next thing.
  void begin_wait() {
    losses_ = 0;
    if (waits_without_ > 0) --waits_without_;
  }
  // Gives the core to another thread that can run; if there is none, it returns at once. False: the thread
  // should sleep now, after the last look that is due before any sleep.
  bool give_way() {
    if (waits_without_ > 0) return false;
    const int64_t left_ns = now_ns();
    ::sched_yield();
    return came_back(now_ns() - left_ns);
  }
  // The part of give_way() after the yield, which took `away_ns`.
  bool came_back(int64_t away_ns) {
    if (away_ns < kLostCoreNs || ++losses_ < kLosses) return true;
    waits_without_ = kWaitsWithout + 1;  // the beginning of the next wait takes one off
    return false;
  }

 private:
  int losses_ = 0;
  int waits_without_ = 0;
};

// The calling thread's. It has no destructor, so threads may use it until they are gone.
inline Patience& own_patience() {
  static thread_local constinit Patience patience;
  return patience;
}

}  // namespace hdt::client
