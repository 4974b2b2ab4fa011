// verdict_test.cc: one row for each cause: what nodes tell, and what must be concluded.
#include "daemon/diagnosis/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/unit/daemon_diagnosis/facts_builder.h"

namespace hdt::daemon::testing {
namespace {

using ::testing::HasSubstr;

struct Row {
  const char* name;
  std::vector<int> places;
  std::function<void(FactsBuilder&)> tell;
  Cause cause;
  std::vector<uint32_t> ranks;
  std::vector<const char*> words;
};

void enter_all(FactsBuilder& world, double ago) {
  for (uint32_t rank = 0; rank < 3; ++rank) world.enter(rank, call("barrier", 0, ago));
}

const Row kRows[] = {
    {"Idle", {0, 0, 1}, [](FactsBuilder&) {}, Cause::kNothingToDo, {}, {"group 000000aa (class c1)"}},
    {"UnderWay",
     {0, 0, 1},
     [](FactsBuilder& w) {
       enter_all(w, 0.1);
       w.connect();
     },
     Cause::kUnderWay,
     {},
     {"call 0 (barrier)"}},
    {"LateRank",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(2, call("allreduce of 8 float32, sum", 3, 9, 7.5));
       w.enter(0, call("barrier", 4, 5));
       w.enter(1, call("barrier", 4, 2));
     },
     Cause::kLateRank,
     {2},
     {"not entered by rank 2 on node n1 (pid 102, sleeping)", "waited for 5.0 s", "call 3",
      "ended 7.5 s ago"}},
    {"LateRanks",
     {0, 0, 1},
     [](FactsBuilder& w) { w.enter(0, call("barrier", 0, 5)); },
     Cause::kLateRank,
     {1, 2},
     {"not entered by rank 1, 2"}},
    // Whom the others wait for has gone ahead in nothing: it is in an earlier call than they are.
    {"OneCallBehind",
     {0, 0, 1},
     [](FactsBuilder& w) {
       for (const uint32_t rank : {0U, 1U}) w.enter(rank, call("barrier", 5, 3));
       w.rank(2).calls = 5;
     },
     Cause::kLateRank,
     {2},
     {"call 5 (barrier)"}},
    {"StoppedProcess",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, call("barrier", 0, 5));
       w.rank(1).process = "T";
     },
     Cause::kStoppedProcess,
     {1},
     {"stopped by a signal", "kill -CONT 101"}},
    {"StoppedInTheCall",
     {0, 0, 1},
     [](FactsBuilder& w) {
       enter_all(w, 4);
       w.rank(2).process = "t";
     },
     Cause::kStoppedProcess,
     {2},
     {"stopped by a debugger"}},
    {"StoppedButNobodyWaits",
     {0, 0, 1},
     [](FactsBuilder& w) { w.rank(1).process = "T"; },
     Cause::kNothingToDo,
     {},
     {}},
    {"ProcessEnded",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, call("barrier", 0, 5));
       w.rank(1).process = "";
     },
     Cause::kDeadRank,
     {1},
     {"rank 1 on node n0", "has ended", "rank 0 is in call 0 (barrier)"}},
    {"RankFailed",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kRankLost, 1, "rank 1 (pid 101) ended"); },
     Cause::kDeadRank,
     {1},
     {"dead rank: rank 1 (pid 101) ended"}},
    {"RankDeparted",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kRankLost, 1, "rank 1 departed from the group"); },
     Cause::kDepartedEarly,
     {1},
     {}},
    {"LeavesBeforeOthersKnow",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, call("barrier", 0, 5));
       w.rank(1).departed = true;
     },
     Cause::kDepartedEarly,
     {1},
     {"departed after 0 calls"}},
    {"Aborted",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kAborted, 2, "rank 2 aborted"); },
     Cause::kAborted,
     {2},
     {}},
    {"Mismatch",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kMismatch, 2, "call 0: ..."); },
     Cause::kMismatchedCall,
     {2},
     {}},
    {"MismatchBeforeFailure",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, call("allreduce of 8 float32, sum", 2, 5));
       w.enter(2, call("allreduce of 9 float32, sum", 2, 5));
     },
     Cause::kMismatchedCall,
     {0, 2},
     {"rank 0 calls allreduce of 8 float32, sum, rank 2 calls allreduce of 9"}},
    {"LinkFailed",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kLink, 2, "no rail"); },
     Cause::kLinkDown,
     {2},
     {}},
    {"DaemonEnded",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kDaemonLost, -1, "SIGTERM"); },
     Cause::kDaemonEnded,
     {},
     {}},
    {"DeadlinePassed",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kTimeout, 1, "late rank: x"); },
     Cause::kDeadline,
     {1},
     {"late rank: x"}},
    {"OtherFailure",
     {0, 0, 1},
     [](FactsBuilder& w) { w.fail(Code::kInternal, -1, "a bug"); },
     Cause::kFailed,
     {},
     {"a bug"}},
    {"SilentNode",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, call("barrier", 0, 5));
       w.silence(1);
     },
     Cause::kUnreachableDaemon,
     {2},
     {"daemon of node n1, which has rank 2", "no answer within 3000 ms"}},
    {"SilentNodeOfAFailedGroup",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.fail(Code::kRankLost, 2, "node n1 has failed");
       w.silence(1);
     },
     Cause::kUnreachableDaemon,
     {2},
     {"node n1 has failed"}},
    {"MessageNotSent",
     {0, 0, 1},
     [](FactsBuilder& w) { w.enter(0, message("recv", 2, 7, 3)); },
     Cause::kUnmatchedMessage,
     {2},
     {"rank 2 on node n1", "has not sent message 7 (40 bytes) to rank 0", "3.0 s"}},
    {"MessageNotReceived",
     {0, 0, 1},
     [](FactsBuilder& w) { w.enter(0, message("send", 1, 0, 3)); },
     Cause::kUnmatchedMessage,
     {1},
     {"has not received message 0 (40 bytes) from rank 0"}},
    {"MessageFromAnyRankNotSent",
     {0, 0, 1},
     [](FactsBuilder& w) { w.enter(2, message("recv", ipc::kAnyRank, 0, 3)); },
     Cause::kUnmatchedMessage,
     {},
     {"no rank of group 000000aa", "has sent a message to", "rank 2 on node n1", "3.0 s",
      "40 bytes from any rank"}},
    {"MessageFromAnyRankBesideOneNotSent",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, message("recv", ipc::kAnyRank, 0, 3));
       w.enter(2, message("recv", 1, 0, 3));
     },
     Cause::kUnmatchedMessage,
     {1},
     {"has not sent message 0 (40 bytes) to rank 2"}},
    {"MessageOfBothSides",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, message("send", 1, 0, 3));
       w.enter(1, message("recv", 0, 0, 3));
       w.connect();
     },
     Cause::kStuck,
     {},
     {"3.0 s"}},
    {"ReceiveFromEachOther",
     {0, 0, 1},
     [](FactsBuilder& w) {
       w.enter(0, message("recv", 1, 0, 3));
       w.enter(1, message("recv", 0, 0, 3));
     },
     Cause::kWrongOrder,
     {0, 1},
     {"circle"}},
    {"ReceiveInARing",
     {0, 1, 2},
     [](FactsBuilder& w) {
       for (uint32_t rank = 0; rank < 3; ++rank) w.enter(rank, message("recv", (rank + 1) % 3, 0, 3));
     },
     Cause::kWrongOrder,
     {0, 1, 2},
     {"rank 2 of group 000000aa"}},
    {"ReceiveInAChain",
     {0, 1, 2},
     [](FactsBuilder& w) {
       w.enter(0, message("recv", 1, 0, 3));
       w.enter(1, message("recv", 2, 0, 3));
     },
     Cause::kUnmatchedMessage,
     {1},
     {}},
    {"Stuck",
     {0, 0, 1},
     [](FactsBuilder& w) {
       enter_all(w, 8);
       w.connect();
       w.group_on(0).peers[0].quiet_ns = 6 * kNsPerSecond;
     },
     Cause::kStuck,
     {},
     {"for 8.0 s", "nothing came from other nodes for 6.0 s"}},
    {"LongButMoving",
     {0, 0, 1},
     [](FactsBuilder& w) {
       enter_all(w, 8);
       w.connect();
       w.group_on(0).peers[0].quiet_ns = kNsPerMs;
     },
     Cause::kUnderWay,
     {},
     {}},
};

class VerdictOn : public ::testing::TestWithParam<Row> {};

TEST_P(VerdictOn, IsTheCause) {
  const Row& row = GetParam();
  FactsBuilder world(row.places);
  row.tell(world);
  const auto verdicts = judge(world.facts());
  ASSERT_EQ(verdicts.size(), 1U);
  const Verdict& verdict = verdicts[0];
  EXPECT_STREQ(name_of(verdict.cause), name_of(row.cause)) << verdict.sentence;
  std::vector<uint32_t> ranks = verdict.ranks;
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, row.ranks);
  EXPECT_THAT(verdict.sentence, ::testing::StartsWith(std::string(name_of(row.cause)) + ": "));
  for (const char* words : row.words) EXPECT_THAT(verdict.sentence, HasSubstr(words));
}

INSTANTIATE_TEST_SUITE_P(Facts, VerdictOn, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

// Process 0 is in the first group's barrier, process 1 in the second one's.
TEST(Verdict, OrdersThatDifferAcrossGroupsAreACircle) {
  FactsBuilder world({0, 1});
  const size_t second = world.add_group("00000000000000bb", {0, 1});
  world.enter(0, call("barrier", 0, 3));
  world.enter(1, call("allreduce of 8 float32, sum", 0, 3), second);
  const auto verdicts = judge(world.facts());
  ASSERT_EQ(verdicts.size(), 2U);
  for (const Verdict& verdict : verdicts) {
    EXPECT_EQ(verdict.cause, Cause::kWrongOrder);
    EXPECT_THAT(verdict.sentence, HasSubstr("group 000000aa"));
    EXPECT_THAT(verdict.sentence, HasSubstr("group 000000bb"));
  }
}

// Without the second wait there is no circle: process 1 is late in one group and idle in the other.
TEST(Verdict, OneWaitIsNoCircle) {
  FactsBuilder world({0, 1});
  world.add_group("00000000000000bb", {0, 1});
  world.enter(0, call("barrier", 0, 3));
  const auto verdicts = judge(world.facts());
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].cause, Cause::kLateRank);
  EXPECT_EQ(verdicts[1].cause, Cause::kNothingToDo);
}

TEST(Verdict, ClocksOfOtherNodesAreTurnedIntoOurs) {
  FactsBuilder world({0, 1});
  world.node(1).offset_ns = 500 * kNsPerSecond;
  auto operation = call("barrier", 0, 4);
  operation.entered_ns += 500 * kNsPerSecond;
  world.enter(1, operation);
  EXPECT_THAT(judge(world.facts())[0].sentence, HasSubstr("waited for 4.0 s"));
}

TEST(Verdict, WhatIsOverComesAfterWhatGoesOn) {
  FactsBuilder world({0, 1});
  const size_t second = world.add_group("00000000000000bb", {0, 1});
  world.fail(Code::kRankLost, 1, "rank 1 ended");
  for (const size_t node : {0, 1}) world.group_on(node).ended = true;
  world.enter(0, call("barrier", 0, 3), second);
  const auto verdicts = judge(world.facts());
  EXPECT_EQ(verdicts[0].cause, Cause::kLateRank);
  EXPECT_EQ(verdicts[1].cause, Cause::kDeadRank);
}

}  // namespace
}  // namespace hdt::daemon::testing
