// failed_calls_test.cc: an allocation of one rank fails in a call, the first one, then the second, and so
// on. The call may succeed all the same. Otherwise the communicator fails on all ranks with that reason: the
// others do not wait for their deadline, as they would for a rank that had refused its arguments. A rank that
// needed nothing more of the failed one has its result, and its next call fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <latch>
#include <numeric>
#include <string>
#include <vector>

#include "tests/integration/communicator/rank_threads.h"
#include "tests/unit/failed_allocations/failing_new.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kElements = 100'000;

// How a rank calls; returns what it was told of the operation.
using Call =
    std::function<hdtResult_t(const std::vector<int32_t>& from, std::vector<int32_t>& to, hdtComm_t comm)>;

hdtResult_t blocking(const std::vector<int32_t>& from, std::vector<int32_t>& to, hdtComm_t comm) {
  return hdtAllReduce(from.data(), to.data(), from.size(), HDT_INT32, HDT_SUM, comm, nullptr);
}

hdtResult_t requested(const std::vector<int32_t>& from, std::vector<int32_t>& to, hdtComm_t comm) {
  hdtRequest_t request = nullptr;
  const hdtResult_t result =
      hdtAllReduce(from.data(), to.data(), from.size(), HDT_INT32, HDT_SUM, comm, &request);
  return result == HDT_SUCCESS ? hdtWait(&request, -1) : result;
}

hdtResult_t grouped(const std::vector<int32_t>& from, std::vector<int32_t>& to, hdtComm_t comm) {
  hdtGroupStart();
  const hdtResult_t result =
      hdtAllReduce(from.data(), to.data(), from.size(), HDT_INT32, HDT_SUM, comm, nullptr);
  const hdtResult_t ended = hdtGroupEnd();
  return result == HDT_SUCCESS ? ended : result;
}

// Made of sends and receives, of a copy of what is sent: the call is in place.
hdtResult_t exchanged(const std::vector<int32_t>& from, std::vector<int32_t>& to, hdtComm_t comm) {
  std::copy(from.begin(), from.end(), to.begin());
  return hdtAllToAll(to.data(), to.data(), to.size() / 2, HDT_INT32, comm, nullptr);
}

// Element i of the result on a rank of two, whose element i is i plus its rank.
int32_t summed(int /*rank*/, size_t i) { return 2 * static_cast<int32_t>(i) + 1; }
int32_t swapped(int rank, size_t i) {
  const size_t half = kElements / 2;
  return static_cast<int32_t>(static_cast<size_t>(rank) * half + i % half + i / half);
}

// Lets rank 0's n-th allocation fail, for n = 1, 2, ... until none fails any more.
void fail_each_allocation(const Placement& placement, const Call& call,
                          const std::function<int32_t(int rank, size_t i)>& expected = summed,
                          const hdtCommConfig_t& config = HDT_COMM_CONFIG_INIT) {
  bool some_failed = false;
  bool more = true;
  for (int n = 1; more; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    ASSERT_LT(n, 200);
    std::promise<bool> ended;
    std::future<bool> failed = ended.get_future();  // whether rank 0's call did
    Nodes::instance().run(placement, [&](Rank& self) {
      hdtComm_t comm = nullptr;
      HDT_EXPECT(hdtCommSplit(self.comm, 0, 0, &comm, &config));
      HDT_EXPECT(hdtBarrier(self.comm, nullptr));
      {
        std::vector<int32_t> from(kElements), to(kElements);
        std::iota(from.begin(), from.end(), self.rank);
        failing_allocation = self.rank == 0 ? n : 0;
        hdtResult_t result = call(from, to, comm);
        if (self.rank == 0) more = failing_allocation == 0;
        failing_allocation = 0;
        if (result == HDT_SUCCESS) {
          for (size_t i = 0; i < kElements; i += 997) EXPECT_EQ(to[i], expected(self.rank, i));
        }
        if (self.rank == 0) {
          ended.set_value(result != HDT_SUCCESS);
        } else if (failed.get()) {
          some_failed = true;
          if (result == HDT_SUCCESS) result = call(from, to, comm);
          EXPECT_NE(result, HDT_SUCCESS);
        }
        if (result != HDT_SUCCESS) {
          EXPECT_EQ(result, HDT_ERR_SYSTEM) << hdtGetErrorString(result) << ": " << hdtGetLastError();
          EXPECT_THAT(hdtGetLastError(), HasSubstr("rank 0")) << "on rank " << self.rank;
        }
      }
      // The buffers are gone, and nobody uses them: under the address sanitizer this would be seen.
      HDT_EXPECT(hdtCommDestroy(comm));
    });
  }
  EXPECT_TRUE(some_failed);
}

TEST(FailedCalls, ABlockingCallOfOneNode) { fail_each_allocation({0, 0}, blocking); }
TEST(FailedCalls, ABlockingCallOfTwoNodes) { fail_each_allocation({0, 1}, blocking); }
TEST(FailedCalls, ACallWithARequest) { fail_each_allocation({0, 1}, requested); }
TEST(FailedCalls, ACallInAGroupOfCalls) { fail_each_allocation({0, 0}, grouped); }
TEST(FailedCalls, ACallInAGroupOfCallsOfTwoNodes) { fail_each_allocation({0, 1}, grouped); }
TEST(FailedCalls, ACallMadeOfOthers) { fail_each_allocation({0, 0}, exchanged, swapped); }
TEST(FailedCalls, ACallMadeOfOthersOfTwoNodes) { fail_each_allocation({0, 1}, exchanged, swapped); }
TEST(FailedCalls, ADeterministicCall) {
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.deterministic = 1;
  fail_each_allocation({0, 0}, blocking, summed, config);
}

// Makes a group of ranks 0 and 1 of `self.comm`, or of the two ranks of `id`.
using Making =
    std::function<hdtResult_t(Rank& self, const hdtUniqueId_t& id, hdtComm_t* made, hdtCommConfig_t& config)>;

hdtResult_t by_split(Rank& self, const hdtUniqueId_t& /*id*/, hdtComm_t* made, hdtCommConfig_t& config) {
  return hdtCommSplit(self.comm, 0, 0, made, &config);
}

hdtResult_t by_shrink(Rank& self, const hdtUniqueId_t& /*id*/, hdtComm_t* made, hdtCommConfig_t& config) {
  const int excluded = 2;
  return hdtCommShrink(self.comm, &excluded, 1, made, &config);
}

hdtResult_t by_id(Rank& self, const hdtUniqueId_t& id, hdtComm_t* made, hdtCommConfig_t& config) {
  return hdtCommInitRank(made, 2, id, self.rank, &config);
}

// The same for calls that make a group: both ranks get the reason, and none waits for its deadline, which is
// a failure of another kind. `again`: after an attempt in
// which rank 0 could not even join, the same call makes the group.
void fail_each_allocation_of(const Making& make, const Placement& placement, bool again = false,
                             int deterministic = 0) {
  const Nodes& nodes = Nodes::instance();  // ids are made by the first of them
  bool more = true;
  int failures = 0;
  for (int n = 1; more; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    ASSERT_LT(n, 600);
    hdtUniqueId_t id;
    ASSERT_EQ(hdtGetUniqueId(&id), HDT_SUCCESS) << hdtGetLastError();
    std::vector<hdtResult_t> results(2);
    std::vector<std::string> words(2);
    std::latch heard(2);
    nodes.run(placement, [&](Rank& self) {
      if (self.rank > 1) return;
      hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
      const auto node = placement[static_cast<size_t>(self.rank)];
      config.socket = nodes.socket(node).c_str();
      config.timeout_ms = 10'000;
      config.deterministic = deterministic;
      hdtComm_t made = nullptr;
      failing_allocation = self.rank == 0 ? n : 0;
      hdtResult_t result = make(self, id, &made, config);
      if (self.rank == 0) more = failing_allocation == 0;
      failing_allocation = 0;
      // Rank 1 may have its group when rank 0 fails.
      if (result == HDT_SUCCESS) result = hdtBarrier(made, nullptr);
      results[static_cast<size_t>(self.rank)] = result;
      if (result != HDT_SUCCESS) words[static_cast<size_t>(self.rank)] = hdtGetLastError();
      if (made != nullptr) HDT_EXPECT(hdtCommDestroy(made));
      // A rank that came first with its second attempt would make the first one of the other a success.
      heard.arrive_and_wait();
      if (!again || words[1].find("cannot take part") == std::string::npos) return;
      HDT_EXPECT(make(self, id, &made, config));
      HDT_EXPECT(hdtBarrier(made, nullptr));
      HDT_EXPECT(hdtCommDestroy(made));
    });
    // Rank 1 may have waited for its deadline: not once for each allocation.
    ASSERT_EQ(results[0], results[1]) << words[0] << "; " << words[1];
    if (results[0] == HDT_SUCCESS) continue;
    ++failures;
    for (const hdtResult_t result : results)
      ASSERT_EQ(result, HDT_ERR_SYSTEM) << words[0] << "; " << words[1];
    EXPECT_THAT(words[1], HasSubstr("rank 0"));
    EXPECT_THAT(words[1], HasSubstr("memory"));
  }
  EXPECT_GE(failures, 10);
}

TEST(FailedCalls, ASplit) { fail_each_allocation_of(by_split, {0, 0}); }
TEST(FailedCalls, ASplitOverTwoNodes) { fail_each_allocation_of(by_split, {0, 1}); }
TEST(FailedCalls, ADeterministicSplit) { fail_each_allocation_of(by_split, {0, 1}, false, 1); }
TEST(FailedCalls, AnInit) { fail_each_allocation_of(by_id, {0, 0}); }
// The failed rank is on another node than the one where the ranks meet.
TEST(FailedCalls, AnInitOverTwoNodes) { fail_each_allocation_of(by_id, {1, 0}); }
TEST(FailedCalls, AShrink) { fail_each_allocation_of(by_shrink, {0, 1, 0}, true); }

}  // namespace
}  // namespace hdt::testing
