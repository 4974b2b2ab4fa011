// failed_calls_test.cc: an allocation of one rank fails in a call, the first one, then the second, and so
// on. The call may succeed all the same. Otherwise the communicator fails on all ranks with that reason: the
// others do not wait for their deadline, as they would for a rank that had refused its arguments. A rank that
// needed nothing more of the failed one has its result, and its next call fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <numeric>
#include <vector>

#include "tests/integration/communicator/rank_threads.h"
#include "tests/unit/failed_allocations/failing_new.h"

namespace hdt::testing {
namespace {

using ::testing::AnyOf;
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

// The buffers of a split are the library's own. The other rank waits for its deadline where the failed one
// was on its way to the new group.
TEST(FailedCalls, ASplit) {
  bool more = true;
  bool some_failed = false;
  for (int n = 1; more; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    ASSERT_LT(n, 200);
    std::vector<hdtResult_t> results(2);
    Nodes::instance().run({0, 0}, [&](Rank& self) {
      hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
      config.timeout_ms = 200;
      hdtComm_t made = nullptr;
      failing_allocation = self.rank == 0 ? n : 0;
      const hdtResult_t result = hdtCommSplit(self.comm, 0, 0, &made, &config);
      if (self.rank == 0) more = failing_allocation == 0;
      failing_allocation = 0;
      results[static_cast<size_t>(self.rank)] = result;
      if (result == HDT_SUCCESS) HDT_EXPECT(hdtCommDestroy(made));
    });
    if (!more) continue;
    some_failed |= results[0] != HDT_SUCCESS;
    // A machine that is busy may reach the deadline before the allocation.
    EXPECT_THAT(results[0], AnyOf(HDT_SUCCESS, HDT_ERR_SYSTEM, HDT_ERR_TIMEOUT));
  }
  EXPECT_TRUE(some_failed);
}

}  // namespace
}  // namespace hdt::testing
