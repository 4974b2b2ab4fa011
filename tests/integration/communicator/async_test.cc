// async_test.cc: requests, many at once, several groups from several threads, memory of the library.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "tests/integration/communicator/done_calls.h"
#include "tests/integration/communicator/example_run.h"

namespace hdt::testing {
namespace {

TEST(Async, ManyAllreducesInFlightCompleteInAnyOrderOfWaiting) {
  constexpr int kCalls = 500;
  Nodes::instance().run({0, 0, 1}, [&](Rank& self) {
    std::vector<int64_t> values(kCalls);
    std::vector<hdtRequest_t> requests(kCalls);
    for (size_t i = 0; i < kCalls; ++i) {
      values[i] = self.rank + static_cast<int64_t>(i);
      HDT_EXPECT(hdtAllReduce(&values[i], &values[i], 1, HDT_INT64, HDT_SUM, self.comm, &requests[i]));
    }
    for (size_t i = kCalls; i-- > 0;) HDT_EXPECT(hdtWait(&requests[i], -1));
    for (size_t i = 0; i < kCalls; ++i) EXPECT_EQ(values[i], 3 + 3 * static_cast<int64_t>(i));
  });
}

TEST(Async, TestSaysInProgressUntilEveryoneHasCome) {
  Nodes::instance().run({0, 1}, [&](Rank& self) {
    int64_t value = self.rank + 1;
    hdtRequest_t request = nullptr;
    int32_t token = 0;
    if (self.rank == 0) {
      HDT_EXPECT(hdtAllReduce(&value, &value, 1, HDT_INT64, HDT_SUM, self.comm, &request));
      EXPECT_EQ(hdtTest(&request), HDT_IN_PROGRESS);
      EXPECT_EQ(hdtWait(&request, 20), HDT_ERR_TIMEOUT);
      EXPECT_NE(request, nullptr);
      HDT_EXPECT(hdtSend(&token, 1, HDT_INT32, 1, self.comm, nullptr));
    } else {
      HDT_EXPECT(hdtRecv(&token, 1, HDT_INT32, 0, self.comm, nullptr));
      HDT_EXPECT(hdtAllReduce(&value, &value, 1, HDT_INT64, HDT_SUM, self.comm, &request));
    }
    hdtResult_t result = HDT_IN_PROGRESS;
    const Deadline deadline = Deadline::after_ms(30'000);
    while ((result = hdtTest(&request)) == HDT_IN_PROGRESS && !deadline.expired()) std::this_thread::yield();
    EXPECT_EQ(result, HDT_SUCCESS);
    EXPECT_EQ(request, nullptr);
    EXPECT_EQ(value, 3);
    HDT_EXPECT(hdtWait(&request, -1));  // a null request
  });
}

// The rank sleeps until the last of its requests has ended: nobody waits for or tests any of them.
TEST(Async, CallsAreMadeOnceWhenRequestsAreDone) {
  constexpr size_t kRequests = 60;
  for (const Placement& placement : {Placement{0, 0}, Placement{0, 1, 1}}) {
    Nodes::instance().run(placement, [&](Rank& self) {
      std::vector<int64_t> values(kRequests);
      std::vector<hdtRequest_t> requests(kRequests);
      Calls calls;
      for (size_t i = 0; i < kRequests; ++i) {
        values[i] = self.rank;
        if (i % 3 == 0) {  // of several messages
          requests[i] = nullptr;
          HDT_EXPECT(hdtGather(&values[i], values.data(), 0, HDT_INT64, 0, self.comm, &requests[i]));
        } else {
          HDT_EXPECT(hdtAllReduce(&values[i], &values[i], 1, HDT_INT64, HDT_MAX, self.comm, &requests[i]));
        }
        for (int twice = 0; twice < 2; ++twice) HDT_EXPECT(hdtWhenDone(requests[i], &Calls::count, &calls));
      }
      EXPECT_TRUE(calls.wait_for(2 * kRequests)) << calls.now();
      for (size_t i = 0; i < kRequests; ++i) {
        EXPECT_EQ(hdtTest(&requests[i]), HDT_SUCCESS);
        if (i % 3 != 0) {
          EXPECT_EQ(values[i], static_cast<int64_t>(placement.size()) - 1);
        }
      }
      EXPECT_EQ(calls.now(), 2 * kRequests);
      HDT_EXPECT(hdtWhenDone(nullptr, &Calls::count, &calls));
      EXPECT_EQ(calls.now(), 2 * kRequests + 1);
    });
  }
}

TEST(Async, CallsAreMadeForRequestsThatFail) {
  for (const Placement& placement : {Placement{0, 0}, Placement{0, 1}}) {
    Nodes::instance().run(placement, [&](Rank& self) {
      int32_t value = 0, token = 0;
      if (self.rank == 1) {
        HDT_EXPECT(hdtRecv(&token, 1, HDT_INT32, 0, self.comm, nullptr));
        HDT_EXPECT(hdtCommAbort(self.comm));
        return;
      }
      hdtRequest_t request = nullptr;
      HDT_EXPECT(hdtRecv(&value, 1, HDT_INT32, 1, self.comm, &request));
      EXPECT_EQ(hdtWhenDone(request, nullptr, nullptr), HDT_ERR_INVALID_ARGUMENT);
      Calls calls;
      HDT_EXPECT(hdtWhenDone(request, &Calls::count, &calls));
      HDT_EXPECT(hdtSend(&token, 1, HDT_INT32, 1, self.comm, nullptr));
      EXPECT_TRUE(calls.wait_for(1));
      EXPECT_EQ(hdtTest(&request), HDT_ERR_ABORTED);
      EXPECT_EQ(request, nullptr);
      EXPECT_EQ(calls.now(), 1U);
    });
  }
}

// Nothing happens between the call and the deadline that anybody else would notice.
TEST(Async, ACallIsMadeAtTheDeadline) {
  Nodes::instance().run({0, 0}, [&](Rank& self) {
    hdtComm_t brief = nullptr;
    HDT_EXPECT(hdtCommSplit(self.comm, 0, self.rank, &brief, nullptr));
    HDT_EXPECT(hdtCommSetTimeout(brief, 300));
    // A split that has not ended on all ranks ends with the failure of the group that it makes.
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
    if (self.rank == 0) {
      int32_t value = 0;
      hdtRequest_t request = nullptr;
      HDT_EXPECT(hdtRecv(&value, 1, HDT_INT32, 1, brief, &request));
      Calls calls;
      HDT_EXPECT(hdtWhenDone(request, &Calls::count, &calls));
      EXPECT_TRUE(calls.wait_for(1));
      EXPECT_EQ(hdtTest(&request), HDT_ERR_TIMEOUT);
    }
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
    HDT_EXPECT(hdtCommDestroy(brief));
  });
}

TEST(Async, SeveralGroupsFromSeveralThreads) {
  constexpr int kGroups = 4;
  const Nodes& nodes = Nodes::instance();  // whose daemons end with the thread that has started them
  std::vector<std::thread> threads;
  for (int group = 0; group < kGroups; ++group) {
    threads.emplace_back([group, &nodes] {
      const Placement placement = group % 2 == 0 ? Placement{0, 1} : Placement{1, 0, 2};
      nodes.run(placement, [&](Rank& self) {
        for (unsigned call = 0; call < 50; ++call) {
          const Example example{Operation::kAllReduce,
                                HDT_FLOAT32,
                                HDT_SUM,
                                call % 2 == 0,
                                1U << call % 16,
                                0,
                                call + static_cast<unsigned>(group)};
          ExampleRun run(example, self);
          run.start(nullptr);
          run.verify();
        }
      });
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Memory, OfTheLibraryIsZeroedAlignedAndWorks) {
  constexpr size_t kCount = 300'000;
  Nodes::instance().run({0, 0, 1}, [&](Rank& self) {
    void* memory = nullptr;
    HDT_EXPECT(hdtMemAlloc(&memory, kCount * sizeof(float)));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0U);
    auto* values = static_cast<float*>(memory);
    EXPECT_TRUE(std::all_of(values, values + kCount, [](float v) { return v == 0; }));
    std::fill(values, values + kCount, static_cast<float>(self.rank + 1));
    HDT_EXPECT(hdtAllReduce(values, values, kCount, HDT_FLOAT32, HDT_SUM, self.comm, nullptr));
    EXPECT_TRUE(std::all_of(values, values + kCount, [](float v) { return v == 6; }));
    HDT_EXPECT(hdtMemFree(memory));
  });
}

}  // namespace
}  // namespace hdt::testing
