// late_rank_test.cc: ranks that never join or never enter a call are named at the deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LateRank, ThatNeverJoinsIsNamed) {
  World world(2);
  auto first = world.rank_on(0);
  auto third = world.rank_on(1);
  const Answer id = first->call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  first->start("join 3 0 500 " + id.text);
  third->start("join 3 2 500 " + id.text);
  for (auto* rank : {first.get(), third.get()}) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_ERR_TIMEOUT) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("rank 1"));
  }
  world.expect_serving();
}

constexpr int64_t kDeadlineMs = 700;

class LateRank : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(LateRank, ThatNeverEntersACollectiveIsNamed) {
  World world(2);
  auto ranks = world.group(GetParam(), kDeadlineMs);
  ranks[0]->start("allreduce 1000 4 0");
  ranks[2]->start("allreduce 1000 4 0");
  for (size_t rank : {0, 2}) {
    const Answer answer = ranks[rank]->finish();
    EXPECT_EQ(answer.result, HDT_ERR_TIMEOUT) << answer.text;
    EXPECT_THAT(answer.text, AllOf(HasSubstr("not entered by rank 1"), HasSubstr("allreduce")));
  }
  world.expect_serving();
}

TEST_P(LateRank, ThatNeverSendsIsNamed) {
  World world(2);
  auto ranks = world.group(GetParam(), kDeadlineMs);
  const Answer answer = ranks[0]->call("recv 10 4 1");
  EXPECT_EQ(answer.result, HDT_ERR_TIMEOUT) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 1 has not sent"));
}

TEST_P(LateRank, IsNamedAtTheDeadlineThatWasSetLater) {
  World world(2);
  auto ranks = world.group(GetParam());
  EXPECT_EQ(ranks[0]->call("timeout 0").result, HDT_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(ranks[0]->call("timeout 321").result, HDT_SUCCESS);
  const Answer answer = ranks[0]->call("recv 10 4 1");
  EXPECT_EQ(answer.result, HDT_ERR_TIMEOUT) << answer.text;
  EXPECT_THAT(answer.text, AllOf(HasSubstr("rank 1 has not sent"), HasSubstr("321 ms")));
}

INSTANTIATE_TEST_SUITE_P(All, LateRank,
                         ::testing::Values(std::vector<int>{0, 0, 0}, std::vector<int>{0, 1, 0}),
                         [](const auto& shape) { return shape.param[1] == 0 ? "SameNode" : "OtherNode"; });

}  // namespace
}  // namespace hdt::testing
