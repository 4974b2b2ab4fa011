// patience.h: when a thread that waits for another one stops looking and sleeps.
//
// Between two looks a waiter gives up its core (sched_yield()). Where the core has nothing else to do, or
// only the thread that is waited for, that is cheaper than to sleep and to be woken. Where more threads can
// run than there are cores it is not: threads that wait hand the core to each other, each time a change of
// thread in vain, or lose it to a thread that computes, for a whole time slice. There a waiter sleeps until
// it is woken, once.
//
// A waiter tells the two apart by how often and for how long it lost its core. So nobody need know what else
// runs on the machine: other nodes of the group, other jobs, or the processes that prepare a job's data.
// docs/notes/performance-2026.md has the measurements.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.h"

namespace hdt {

// Counts how often and for how long one thread lost its core. Only that thread uses it.
class Patience {
 public:
  // Whoever was away for so long has lost its core to another thread. A yield to nobody takes 0.2 to 1 us,
  // and the shortest one to somebody is two changes of thread.
  static constexpr int64_t kLostCoreNs = 2 * kNsPerUs;
  // For how long a thread may be without its core in one wait: what waits for each other takes less, and the
  // time slice of a thread that computes is some milliseconds.
  static constexpr int64_t kLongAwayNs = kNsPerMs;
  // The number of waits after it in which the thread sleeps without giving way at all. The next one tries
  // again.
  static constexpr int kWaitsWithout = 8;

  // A thread that may lose its core so often in one wait.
  constexpr explicit Patience(int losses) : most_losses_(losses) {}

  // Begins a wait: something has come, and the thread waits for the next thing.
  void begin_wait() {
    losses_ = 0;
    away_ns_ = 0;
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
    if (away_ns < kLostCoreNs) return true;
    away_ns_ += away_ns;
    if (++losses_ < most_losses_ && away_ns_ < kLongAwayNs) return true;
    waits_without_ = kWaitsWithout + 1;  // the beginning of the next wait takes one off
    return false;
  }

 private:
  int most_losses_;
  int losses_ = 0;
  int64_t away_ns_ = 0;
  int waits_without_ = 0;
};

}  // namespace hdt
