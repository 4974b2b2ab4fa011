// lost_rank_test.cc: ranks that are killed, leave, abort or are stopped for a while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The project's promise: the others know within this time.
constexpr int64_t kToldMs = 1'000;

class LostRank : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  World world_{2};
  std::vector<std::unique_ptr<RankProcess>> ranks_ = world_.group(GetParam());
  // Rank 1 is the one that goes.
  void expect_told(hdtResult_t result, const std::string& words) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == 1) continue;
      const Answer answer = ranks_[rank]->finish(kToldMs);
      EXPECT_EQ(answer.result, result) << "rank " << rank << ": " << answer.text;
      EXPECT_THAT(answer.text, HasSubstr(words));
    }
    world_.expect_serving();
  }
};

TEST_P(LostRank, KilledWhileOthersAreInACollective) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 1) ranks_[rank]->start("allreduce 5000000 4 0");
  }
  EXPECT_EQ(ranks_[0]->finish(20).result, HDT_IN_PROGRESS);
  ranks_[1]->process().signal(SIGKILL);
  expect_told(HDT_ERR_RANK_LOST, "rank 1");
}

TEST_P(LostRank, KilledInTheCollectiveThatOneOfTheOthersHasNotEntered) {
  ranks_[1]->start("allreduce 5000000 4 0");
  EXPECT_EQ(ranks_[1]->finish(20).result, HDT_IN_PROGRESS);
  ranks_[1]->process().signal(SIGKILL);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 1) ranks_[rank]->start("allreduce 5000000 4 0");
  }
  expect_told(HDT_ERR_RANK_LOST, "rank 1");
}

TEST_P(LostRank, KilledWhileOthersReceiveFromIt) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 1) ranks_[rank]->start("recv 100 4 1");
  }
  ranks_[1]->process().signal(SIGKILL);
  expect_told(HDT_ERR_RANK_LOST, "rank 1");
}

TEST_P(LostRank, KilledWhileOthersReceiveFromAnyRank) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 1) ranks_[rank]->start("recv_any 100 4 0");
  }
  EXPECT_EQ(ranks_[0]->finish(20).result, HDT_IN_PROGRESS);
  ranks_[1]->process().signal(SIGKILL);
  expect_told(HDT_ERR_RANK_LOST, "rank 1");
}

TEST_P(LostRank, KilledWhileIdle) {
  ranks_[1]->process().signal(SIGKILL);
  ASSERT_TRUE(ranks_[1]->process().wait(Deadline::after_ms(kAnswerMs)));
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 1) ranks_[rank]->start("barrier");
  }
  expect_told(HDT_ERR_RANK_LOST, "rank 1");
}

TEST_P(LostRank, LeavesBeforeACollective) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 1) ranks_[rank]->start("barrier");
  }
  EXPECT_EQ(ranks_[1]->call("destroy").result, HDT_SUCCESS);
  expect_told(HDT_ERR_RANK_LOST, "rank 1 departed");
}

TEST_P(LostRank, Aborts) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 1) ranks_[rank]->start("allreduce 5000000 4 0");
  }
  EXPECT_EQ(ranks_[1]->call("abort").result, HDT_SUCCESS);
  expect_told(HDT_ERR_ABORTED, "rank 1 aborted");
}

// A debugger's breakpoint is no death.
TEST_P(LostRank, StoppedIsNotLost) {
  ranks_[1]->process().signal(SIGSTOP);
  for (auto& rank : ranks_) rank->start("allreduce 100000 4 0");
  EXPECT_EQ(ranks_[0]->finish(1'500).result, HDT_IN_PROGRESS);
  ranks_[1]->process().signal(SIGCONT);
  for (auto& rank : ranks_) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LostRank,
                         ::testing::Values(std::vector<int>{0, 0, 0}, std::vector<int>{0, 1, 0}),
                         [](const auto& shape) { return shape.param[1] == 0 ? "OneNode" : "TwoNodes"; });

}  // namespace
}  // namespace hdt::testing
