// making_verdict_test.cc: what is said of groups that are being made, by what nodes tell of them.
#include "daemon/diagnosis/making_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"

namespace hdt::daemon::testing {
namespace {

using ::testing::HasSubstr;

NodeFacts node(const std::string& name, MakingFacts making) {
  NodeFacts facts;
  facts.name = name;
  making.id = "00000000000000aa";
  making.group_class = "dp";
  facts.making.push_back(std::move(making));
  return facts;
}

MakingFacts waiting(const std::string& error) {
  MakingFacts facts;
  facts.ranks = 3;
  facts.joined = {{2, "b"}};
  facts.rendezvous = "10.0.0.1:18520";
  facts.last_error = error;
  facts.left_ns = 8 * kNsPerSecond;
  return facts;
}

TEST(MakingVerdict, WithoutTheCoordinatorSaysWhatTheWayThereMeets) {
  const auto verdicts = judge_making({node("b", waiting("Connection refused"))});
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_FALSE(verdicts[0].coordinator_told);
  EXPECT_THAT(
      verdicts[0].sentence,
      HasSubstr("group 000000aa (class dp) is being made: rank 2 (node b) of 3 waits at the rendezvous "
                "10.0.0.1:18520, which cannot be reached: Connection refused; it is given up in 8.0 s"));
  EXPECT_THAT(judge_making({node("b", waiting(""))})[0].sentence,
              HasSubstr("which has not sent which ranks have joined"));
}

TEST(MakingVerdict, TheCoordinatorKnowsWhoIsMissing) {
  MakingFacts coordinator;
  coordinator.coordinates = true;
  coordinator.ranks = 5;
  coordinator.joined = {{0, "a"}, {2, "b"}, {1, "a"}};
  const auto verdicts = judge_making({node("b", waiting("")), node("a", coordinator)});
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].missing, (std::vector<uint32_t>{3, 4}));
  EXPECT_THAT(verdicts[0].sentence,
              HasSubstr("ranks 3, 4 of 5 have not joined; 0, 1 (node a), 2 (node b) have"));
}

TEST(MakingVerdict, OfACompleteOneWhatNodesLack) {
  MakingFacts making;
  making.ranks = 2;
  making.complete = true;
  EXPECT_THAT(judge_making({node("a", making)})[0].sentence,
              HasSubstr("all 2 ranks have joined, and their nodes are getting ready"));
  making.lacks = {"has no connection to node b; tcp dials eth0 (10.0.0.1) to 10.0.0.2:4711"};
  EXPECT_THAT(judge_making({node("a", making)})[0].sentence,
              HasSubstr("all 2 ranks have joined; node a has no connection to node b; tcp dials eth0 "
                        "(10.0.0.1) to 10.0.0.2:4711"));
}

TEST(MakingVerdict, NothingIsMade) { EXPECT_TRUE(judge_making({NodeFacts{}}).empty()); }

}  // namespace
}  // namespace hdt::daemon::testing
