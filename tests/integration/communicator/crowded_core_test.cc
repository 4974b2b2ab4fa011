// crowded_core_test.cc: ranks and daemons of three nodes share one core with a thread that never gives it up.
// There each look in vain costs a time slice, so ranks and engines sleep and have to be woken: a call whose
// wake-up is lost does not end.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <iostream>
#include <thread>

#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

// While it lives, the thread that made it and everything that it starts keep to one core.
class OneCore {
 public:
  OneCore() {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &before_)) continue;
      CPU_SET(core, &one);
      break;
    }
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneCore() { EXPECT_EQ(::sched_setaffinity(0, sizeof before_, &before_), 0); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

// A thread that computes, for as long as it lives.
class BusyThread {
 public:
  BusyThread()
      : thread_([this] {
          while (!stop_.load(std::memory_order_relaxed)) {
          }
        }) {}
  ~BusyThread() {
    stop_ = true;
    thread_.join();
  }
  BusyThread(const BusyThread&) = delete;
  BusyThread& operator=(const BusyThread&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// How often the calling thread has slept so far. Giving up the core does not count: the kernel takes it for
// something that the scheduler does.
long sleeps() {
  rusage used{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &used), 0);
  return used.ru_nvcsw;
}

// Without the rule of base/patience.h ranks give up the core 200 times before they sleep, which is
// more often than a call needs.
TEST(CrowdedCore, RanksSleepAndEveryCallEnds) {
  constexpr int64_t kCalls = 200;
  const OneCore core;
  const Nodes nodes;
  const BusyThread busy;
  nodes.run({0, 1, 2}, [](Rank& self) {
    const long before = sleeps();
    for (int64_t call = 0; call < kCalls; ++call) {
      int64_t value = call + self.rank;
      HDT_EXPECT(hdtAllReduce(&value, &value, 1, HDT_INT64, HDT_SUM, self.comm, nullptr));
      ASSERT_EQ(value, 3 * call + 3);
    }
    EXPECT_GT(sleeps() - before, kCalls / 4);
    std::cout << "rank " << self.rank << " slept " << sleeps() - before << " times\n";
  });
}

}  // namespace
}  // namespace hdt::testing
