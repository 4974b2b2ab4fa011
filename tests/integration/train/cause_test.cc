// cause_test.cc: the cause of a failed step, among what a rank has seen itself and what has ended the world.
#include <gmock/gmock.h>

#include <string>

#include "hdt/hdt.hpp"
#include "tests/integration/communicator/rank_threads.h"
#include "training/engine/hdt_messenger.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

// Rank 1 aborts the world; rank 0 has seen `failure`.
Status cause_after_an_abort(const Status& failure) {
  Status cause;
  Nodes::instance().run({0, 1}, [&](const Rank& rank) {
    hdtComm_t own = nullptr;
    HDT_EXPECT(hdtCommSplit(rank.comm, 0, rank.rank, &own, nullptr));
    Communicator world = Communicator::adopt(own);
    if (rank.rank == 1) {
      HDT_EXPECT(hdtCommAbort(world.get()));
    } else {
      // Until it knows: no timing decides what the cause is.
      EXPECT_THROW(world.barrier(), Error);
      cause = training::cause_of(world, failure);
    }
  });
  return cause;
}

TEST(CauseOfAFailedStep, IsWhatHasEndedTheWorld) {
  const Status cause = cause_after_an_abort({Code::kRankLost, "rank 7 of a smaller group departed"});
  EXPECT_EQ(cause.code(), Code::kAborted);
  EXPECT_THAT(cause.message(), HasSubstr("rank 1 aborted the group"));
}

// All ranks have seen it, and each aborts the world then: an abort is not the cause.
TEST(CauseOfAFailedStep, IsTheMismatchThatThisRankHasSeen) {
  const Status cause = cause_after_an_abort({Code::kMismatch, "rank 0 is in step 5"});
  EXPECT_EQ(cause.code(), Code::kMismatch);
  EXPECT_EQ(cause.message(), "rank 0 is in step 5");
}

}  // namespace
}  // namespace hdt::testing
