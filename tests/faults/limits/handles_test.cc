// handles_test.cc: handles that have ended, or never were any: every call says so, and none crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

float one = 1;
float two[2];
const size_t counts[] = {1};
const size_t places[] = {0};
size_t suggested[2];

// Every call that takes a communicator.
std::map<std::string, std::function<hdtResult_t(hdtComm_t)>> calls() {
  static int number = 0;
  static hdtResult_t result = HDT_SUCCESS;
  static hdtComm_t made = nullptr;
  static hdtRedOp_t op = HDT_SUM;
  return {
      {"Destroy", [](hdtComm_t c) { return hdtCommDestroy(c); }},
      {"Abort", [](hdtComm_t c) { return hdtCommAbort(c); }},
      {"Split", [](hdtComm_t c) { return hdtCommSplit(c, 0, 0, &made, nullptr); }},
      {"Shrink", [](hdtComm_t c) { return hdtCommShrink(c, nullptr, 0, &made, nullptr); }},
      {"GetAsyncError", [](hdtComm_t c) { return hdtCommGetAsyncError(c, &result); }},
      {"Count", [](hdtComm_t c) { return hdtCommCount(c, &number); }},
      {"UserRank", [](hdtComm_t c) { return hdtCommUserRank(c, &number); }},
      {"Nodes", [](hdtComm_t c) { return hdtCommNodes(c, &number); }},
      {"SetTimeout", [](hdtComm_t c) { return hdtCommSetTimeout(c, 1); }},
      {"SetSamples", [](hdtComm_t c) { return hdtCommSetSamples(c, 1); }},
      {"FailedRank", [](hdtComm_t c) { return hdtCommFailedRank(c, &number); }},
      {"NodeOf", [](hdtComm_t c) { return hdtCommNodeOf(c, 0, &number); }},
      {"AllReduce", [](hdtComm_t c) { return hdtAllReduce(&one, two, 1, HDT_FLOAT32, HDT_SUM, c, nullptr); }},
      {"Reduce", [](hdtComm_t c) { return hdtReduce(&one, two, 1, HDT_FLOAT32, HDT_SUM, 0, c, nullptr); }},
      {"ReduceScatter",
       [](hdtComm_t c) { return hdtReduceScatter(&one, two, 1, HDT_FLOAT32, HDT_SUM, c, nullptr); }},
      {"AllGather", [](hdtComm_t c) { return hdtAllGather(&one, two, 1, HDT_FLOAT32, c, nullptr); }},
      {"Broadcast", [](hdtComm_t c) { return hdtBroadcast(&one, two, 1, HDT_FLOAT32, 0, c, nullptr); }},
      {"Gather", [](hdtComm_t c) { return hdtGather(&one, two, 1, HDT_FLOAT32, 0, c, nullptr); }},
      {"Scatter", [](hdtComm_t c) { return hdtScatter(&one, two, 1, HDT_FLOAT32, 0, c, nullptr); }},
      {"AllToAll", [](hdtComm_t c) { return hdtAllToAll(&one, two, 1, HDT_FLOAT32, c, nullptr); }},
      {"AllToAllV",
       [](hdtComm_t c) {
         return hdtAllToAllV(&one, counts, places, two, counts, places, HDT_FLOAT32, c, nullptr);
       }},
      {"AllGatherV",
       [](hdtComm_t c) { return hdtAllGatherV(&one, two, counts, places, HDT_FLOAT32, c, nullptr); }},
      {"ReduceScatterV",
       [](hdtComm_t c) { return hdtReduceScatterV(&one, two, counts, HDT_FLOAT32, HDT_SUM, c, nullptr); }},
      {"SuggestCounts", [](hdtComm_t c) { return hdtSuggestCounts(c, 1, HDT_FLOAT32, suggested); }},
      {"RedOpCreate", [](hdtComm_t c) { return hdtRedOpCreatePreMulSum(&op, &one, HDT_FLOAT32, c); }},
      {"RedOpDestroy", [](hdtComm_t c) { return hdtRedOpDestroy(static_cast<hdtRedOp_t>(1 << 16), c); }},
      {"Barrier", [](hdtComm_t c) { return hdtBarrier(c, nullptr); }},
      {"Send", [](hdtComm_t c) { return hdtSend(&one, 1, HDT_FLOAT32, 0, c, nullptr); }},
      {"Recv", [](hdtComm_t c) { return hdtRecv(two, 1, HDT_FLOAT32, 0, c, nullptr); }},
      {"RecvAny", [](hdtComm_t c) { return hdtRecvAny(two, 1, HDT_FLOAT32, nullptr, c, nullptr); }},
      {"SendRecv", [](hdtComm_t c) { return hdtSendRecv(&one, 1, 0, two, 1, 0, HDT_FLOAT32, c, nullptr); }},
  };
}

void expect_no_communicator(hdtComm_t comm) {
  for (const auto& [name, call] : calls()) {
    EXPECT_EQ(call(comm), HDT_ERR_INVALID_ARGUMENT) << name;
    EXPECT_THAT(hdtGetLastError(),
                HasSubstr("comm is no communicator: it has been destroyed, or was never made"))
        << name;
  }
  EXPECT_THAT(hdtCommErrorMessage(comm), HasSubstr("no communicator"));
}

TEST(Handles, OfADestroyedCommunicator) {
  hdtComm_t comm = nullptr;
  Nodes::instance().run({0}, [&](Rank& rank) { comm = rank.comm; });
  expect_no_communicator(comm);
  // Nor is it taken for one that was made since.
  Nodes::instance().run({0}, [&](Rank& rank) {
    EXPECT_NE(rank.comm, comm);
    expect_no_communicator(comm);
    HDT_EXPECT(hdtBarrier(rank.comm, nullptr));
  });
}

TEST(Handles, ThatNeverWereAny) {
  hdtComm_t comm = nullptr;
  Nodes::instance().run({0}, [&](Rank& rank) {
    int number = 0;
    expect_no_communicator(reinterpret_cast<hdtComm_t>(&number));
    expect_no_communicator(reinterpret_cast<hdtComm_t>(uintptr_t{0xdeadbeef}));
    expect_no_communicator(reinterpret_cast<hdtComm_t>(~uintptr_t{0}));
    hdtRequest_t request = nullptr;
    HDT_EXPECT(hdtBarrier(rank.comm, &request));
    expect_no_communicator(reinterpret_cast<hdtComm_t>(request));
    HDT_EXPECT(hdtWait(&request, -1));
  });
  for (const auto& [name, call] : calls()) {
    if (name == "Destroy") continue;  // of NULL: allowed
    EXPECT_EQ(call(comm = nullptr), HDT_ERR_INVALID_ARGUMENT) << name;
  }
}

TEST(Arguments, OfShrink) {
  Nodes::instance().run({0}, [&](Rank& rank) {
    hdtComm_t made = nullptr;
    const int itself = 0, nobody = 1;
    EXPECT_EQ(hdtCommShrink(rank.comm, nullptr, 1, &made, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtCommShrink(rank.comm, &itself, 1, &made, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtCommShrink(rank.comm, &nobody, 1, &made, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtCommShrink(rank.comm, &nobody, -1, &made, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_THAT(hdtGetLastError(), HasSubstr("count is -1; expected 0 or more"));
    EXPECT_EQ(made, nullptr);
    HDT_EXPECT(hdtBarrier(rank.comm, nullptr));
  });
}

TEST(Handles, OfARequestThatAnotherCopyHasCompleted) {
  Nodes::instance().run({0, 0, 1}, [&](Rank& rank) {
    for (const bool wait : {true, false}) {
      hdtRequest_t request = nullptr;
      HDT_EXPECT(hdtBarrier(rank.comm, &request));
      hdtRequest_t copy = request;
      if (wait) {
        HDT_EXPECT(hdtWait(&request, -1));
      } else {
        while (hdtTest(&request) == HDT_IN_PROGRESS) std::this_thread::yield();
      }
      EXPECT_EQ(request, nullptr);
      EXPECT_EQ(hdtTest(&copy), HDT_ERR_INVALID_ARGUMENT);
      EXPECT_THAT(hdtGetLastError(), HasSubstr("the request is not under way"));
      EXPECT_EQ(hdtWait(&copy, -1), HDT_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(hdtWhenDone(
                    copy, [](void*) { FAIL() << "called"; }, nullptr),
                HDT_ERR_INVALID_ARGUMENT);
    }
    int number = 0;
    auto stray = reinterpret_cast<hdtRequest_t>(&number);
    EXPECT_EQ(hdtWait(&stray, -1), HDT_ERR_INVALID_ARGUMENT);
    HDT_EXPECT(hdtBarrier(rank.comm, nullptr));
  });
}

TEST(Handles, DestroyedByManyThreadsAtOnce) {
  for (int round = 0; round < 20; ++round) {
    Nodes::instance().run({0}, [&](Rank& rank) {
      hdtComm_t second = nullptr;
      HDT_EXPECT(hdtCommSplit(rank.comm, 0, 0, &second, nullptr));
      std::atomic<int> destroyed{0}, refused{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
          // Also beside other calls: those work, or say that it has been destroyed.
          for (int j = 0; j < i * 20; ++j) {
            const hdtResult_t result = hdtAllReduce(&one, &one, 0, HDT_FLOAT32, HDT_SUM, second, nullptr);
            EXPECT_TRUE(result == HDT_SUCCESS || result == HDT_ERR_INVALID_ARGUMENT) << hdtGetLastError();
          }
          const hdtResult_t result = hdtCommDestroy(second);
          if (result == HDT_SUCCESS) ++destroyed;
          if (result == HDT_ERR_INVALID_ARGUMENT) ++refused;
        });
      }
      for (auto& thread : threads) thread.join();
      EXPECT_EQ(destroyed, 1);
      EXPECT_EQ(refused, 3);
    });
  }
}

TEST(Handles, OfMemory) {
  void* memory = nullptr;
  HDT_EXPECT(hdtMemAlloc(&memory, 10'000));
  int number = 0;
  EXPECT_EQ(hdtMemFree(static_cast<char*>(memory) + 4096), HDT_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(hdtMemFree(&number), HDT_ERR_INVALID_ARGUMENT);
  HDT_EXPECT(hdtMemFree(memory));
  EXPECT_EQ(hdtMemFree(memory), HDT_ERR_INVALID_ARGUMENT);
  EXPECT_THAT(hdtGetLastError(), HasSubstr("hdtMemAlloc did not give"));
  HDT_EXPECT(hdtMemFree(nullptr));
}

TEST(Handles, OfReductions) {
  Nodes::instance().run({0, 0}, [&](Rank& rank) {
    hdtRedOp_t op = HDT_SUM;
    const float scale = 2;
    float mine = 0;
    HDT_EXPECT(hdtRedOpCreatePreMulSum(&op, &scale, HDT_FLOAT32, rank.comm));
    HDT_EXPECT(hdtRedOpDestroy(op, rank.comm));
    EXPECT_EQ(hdtRedOpDestroy(op, rank.comm), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtAllReduce(&scale, &mine, 1, HDT_FLOAT32, op, rank.comm, nullptr), HDT_ERR_INVALID_ARGUMENT);
    HDT_EXPECT(hdtBarrier(rank.comm, nullptr));
  });
}

}  // namespace
}  // namespace hdt::testing
