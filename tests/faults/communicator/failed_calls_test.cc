// failed_calls_test.cc: an allocation of one rank fails in a call, the first one, then the second, and so
// on. The call may succeed all the same. Otherwise the communicator fails on all ranks with that reason: the
// others do not wait for their deadline, as they would for a rank that had refused its arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
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

// Lets rank 0's n-th allocation fail, for n = 1, 2, ... until none fails any more.
void fail_each_allocation(const Placement& placement, const Call& call) {
  bool some_failed = false;
  bool more = true;
  for (int n = 1; more; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    ASSERT_LT(n, 200);
    std::vector<hdtResult_t> results(placement.size());
    Nodes::instance().run(placement, [&](Rank& self) {
      std::vector<int32_t> from(kElements), to(kElements);
      std::iota(from.begin(), from.end(), self.rank);
      failing_allocation = self.rank == 0 ? n : 0;
      const hdtResult_t result = call(from, to, self.comm);
      if (self.rank == 0) more = failing_allocation == 0;
      failing_allocation = 0;
      results[static_cast<size_t>(self.rank)] = result;
      if (result != HDT_SUCCESS) {
        EXPECT_EQ(result, HDT_ERR_SYSTEM) << hdtGetErrorString(result) << ": " << hdtGetLastError();
        EXPECT_THAT(hdtGetLastError(), HasSubstr("rank 0")) << "on rank " << self.rank;
        return;
      }
      for (size_t i = 0; i < kElements; i += 997) EXPECT_EQ(to[i], static_cast<int32_t>(2 * i) + 1);
    });
    if (results[0] != HDT_SUCCESS) {
      EXPECT_NE(results[1], HDT_SUCCESS);
    }
    some_failed |= results[0] != HDT_SUCCESS;
  }
  EXPECT_TRUE(some_failed);
}

TEST(FailedCalls, ABlockingCallOfOneNode) { fail_each_allocation({0, 0}, blocking); }
TEST(FailedCalls, ABlockingCallOfTwoNodes) { fail_each_allocation({0, 1}, blocking); }
TEST(FailedCalls, ACallWithARequest) { fail_each_allocation({0, 1}, requested); }
TEST(FailedCalls, ACallInAGroupOfCalls) { fail_each_allocation({0, 0}, grouped); }

}  // namespace
}  // namespace hdt::testing
