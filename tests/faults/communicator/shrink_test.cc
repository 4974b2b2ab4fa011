// shrink_test.cc: a group of those that are left, made at once after others were lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

class Shrink : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  World world_{2};
  std::vector<std::unique_ptr<RankProcess>> ranks_ = world_.group(GetParam());

  void kill(size_t rank) {
    ranks_[rank]->process().signal(SIGKILL);
    ASSERT_TRUE(ranks_[rank]->process().wait(Deadline::after_ms(kAnswerMs)));
    ranks_[rank] = nullptr;
  }
  // Every rank that lives makes the call at once.
  void everyone(const std::string& call, hdtResult_t result, const std::string& words = "") {
    for (auto& rank : ranks_) {
      if (rank != nullptr) rank->start(call);
    }
    for (auto& rank : ranks_) {
      if (rank == nullptr) continue;
      const Answer answer = rank->finish();
      EXPECT_EQ(answer.result, result) << call << ": " << answer.text;
      EXPECT_THAT(answer.text, HasSubstr(words)) << call;
    }
  }
};

// The first one: it was met where the group was made.
TEST_P(Shrink, AfterTheFirstRankWasKilledInACollective) {
  for (size_t rank = 1; rank < ranks_.size(); ++rank) ranks_[rank]->start("allreduce 5000000 4 0");
  EXPECT_EQ(ranks_[1]->finish(20).result, HDT_IN_PROGRESS);
  kill(0);
  for (size_t rank = 1; rank < ranks_.size(); ++rank)
    EXPECT_EQ(ranks_[rank]->finish().result, HDT_ERR_RANK_LOST);
  everyone("failed", HDT_SUCCESS, "0");
  everyone("shrink 30000 0", HDT_SUCCESS);
  everyone("second", HDT_SUCCESS);
  everyone("sum 7", HDT_SUCCESS, "21");
}

TEST_P(Shrink, OfAGroupThatWasShrunkBefore) {
  for (const size_t lost : {size_t{1}, size_t{0}}) {
    kill(lost);
    everyone("barrier", HDT_ERR_RANK_LOST);
    everyone("shrink 30000 " + std::to_string(lost), HDT_SUCCESS);
    everyone("second", HDT_SUCCESS);
  }
  everyone("sum 5", HDT_SUCCESS, "10");
}

TEST_P(Shrink, OfAGroupThatWorksLeavesItAsItIs) {
  everyone("failed", HDT_SUCCESS, "-1");
  for (const size_t rank : {0, 2, 3}) ranks_[rank]->start("shrink 30000 1");
  for (const size_t rank : {0, 2, 3}) EXPECT_EQ(ranks_[rank]->finish().result, HDT_SUCCESS);
  everyone("sum 1", HDT_SUCCESS, "4");
}

// Another one is lost meanwhile: the call says who, and is made again.
TEST_P(Shrink, NamesWhoIsMissing) {
  kill(1);
  kill(2);
  everyone("shrink 1500 1", HDT_ERR_TIMEOUT, "rank 1");  // of the new group: the old one's rank 2
  everyone("shrink 30000 1 2", HDT_SUCCESS);
  everyone("second", HDT_SUCCESS);
  everyone("sum 3", HDT_SUCCESS, "6");
}

// A rank that is lost in the last moment leaves some with a group that has failed, and others without one.
// They meet all the same.
TEST_P(Shrink, OfRanksThatHaveMadeOtherGroupsBefore) {
  kill(1);
  for (const size_t rank : {0, 3}) ranks_[rank]->start("shrink 30000 1 2");
  for (const size_t rank : {0, 3}) EXPECT_EQ(ranks_[rank]->finish().result, HDT_SUCCESS);
  everyone("shrink 30000 1", HDT_SUCCESS);
  everyone("second", HDT_SUCCESS);
  everyone("sum 4", HDT_SUCCESS, "12");
}

TEST_P(Shrink, RefusesRanksThatCannotBeLeftOut) {
  EXPECT_EQ(ranks_[2]->call("shrink 1000 2").result, HDT_ERR_INVALID_ARGUMENT);
  const Answer answer = ranks_[2]->call("shrink 1000 4");
  EXPECT_EQ(answer.result, HDT_ERR_INVALID_ARGUMENT);
  EXPECT_THAT(answer.text, HasSubstr("excluded rank 4 is not in the group"));
}

INSTANTIATE_TEST_SUITE_P(All, Shrink,
                         ::testing::Values(std::vector<int>{0, 0, 0, 0}, std::vector<int>{0, 1, 1, 0}),
                         [](const auto& shape) { return shape.param[1] == 0 ? "OneNode" : "TwoNodes"; });

}  // namespace
}  // namespace hdt::testing
