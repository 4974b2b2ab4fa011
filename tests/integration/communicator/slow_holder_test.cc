// slow_holder_test.cc: a thread loses its core while it holds a lock of libhdt.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/communicator/done_calls.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

// The thread stands still before its next unlock, and sets this; null: it does not.
thread_local std::atomic<bool>* next_unlock = nullptr;

void stand_still() {
  if (next_unlock == nullptr) return;
  *std::exchange(next_unlock, nullptr) = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

bool becomes_true(const std::atomic<bool>& value) {
  const Deadline deadline = Deadline::after_ms(30'000);
  while (!value && !deadline.expired()) std::this_thread::yield();
  return value;
}

// Rank 0 looks for the call of rank 1 by hdtTest, and stands still before it gives the communicator's lock
// back. Meanwhile rank 1 calls, and rings. That ring wakes rank 0's progress thread, which must look when
// hdtTest returns: the look of hdtTest was too early, and nobody rings again.
TEST(SlowHolder, AnOperationThatBeginsDuringATestEnds) {
  constexpr size_t kTimes = 8;
  std::vector<std::atomic<bool>> stands_still(kTimes);
  Nodes::instance().run({0, 0}, [&](Rank& self) {
    for (std::atomic<bool>& still : stands_still) {
      int32_t value = self.rank;
      if (self.rank == 1) {
        ASSERT_TRUE(becomes_true(still));
        HDT_EXPECT(hdtAllReduce(&value, &value, 1, HDT_INT32, HDT_SUM, self.comm, nullptr));
      } else {
        Calls ended;
        hdtRequest_t request = nullptr;
        HDT_EXPECT(hdtAllReduce(&value, &value, 1, HDT_INT32, HDT_SUM, self.comm, &request));
        HDT_EXPECT(hdtWhenDone(request, &Calls::count, &ended));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the progress thread falls asleep
        next_unlock = &still;
        // The progress thread may complete the call before hdtTest looks at the result.
        // If it holds the lock just now, hdtTest takes none: then once more.
        hdtResult_t tested = HDT_IN_PROGRESS;
        for (int tries = 0; next_unlock != nullptr && tries < 1'000; ++tries) tested = hdtTest(&request);
        EXPECT_TRUE(tested == HDT_IN_PROGRESS || tested == HDT_SUCCESS) << hdtGetLastError();
        ASSERT_EQ(next_unlock, nullptr) << "hdtTest took no lock";
        ASSERT_TRUE(ended.wait_for(1, std::chrono::seconds(20)));
        HDT_EXPECT(hdtWait(&request, -1));
      }
      ASSERT_EQ(value, 1);
    }
  });
}

}  // namespace

}  // namespace hdt::testing

// In the place of the system's function, for all mutexes of this program.
extern "C" int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  static auto* const system =
      reinterpret_cast<int (*)(pthread_mutex_t*)>(::dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
  hdt::testing::stand_still();
  return system(mutex);
}
