// why_test.cc: causes that keep a job from making progress, made on purpose, and what hdtctl why reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ranks = std::vector<std::unique_ptr<RankProcess>>;

nlohmann::json ask(World& world, const std::string& group_class, int node = 0) {
  const ProgramRun run =
      run_program({HDT_HDTCTL, "--socket", world.node(node).socket(), "why", group_class, "--json"});
  EXPECT_EQ(run.status, 0) << run.errors;
  return nlohmann::json::parse(run.output, nullptr, false);
}

// Asks until the verdict on the class's only group is `cause`, with these words: ranks and daemons take their
// time to get into it.
nlohmann::json await_verdict(World& world, const std::string& group_class, const std::string& cause,
                             int node = 0, const std::string& words = "") {
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  nlohmann::json answer;
  do {
    answer = ask(world, group_class, node);
    if (!answer.is_object() || answer["verdicts"].size() != 1) continue;
    const auto& verdict = answer["verdicts"][0];
    const auto sentence = verdict["sentence"].get<std::string>();
    if (verdict["cause"] == cause && sentence.find(words) != std::string::npos) return verdict;
  } while (!deadline.expired());
  ADD_FAILURE() << "not \"" << cause << "\": " << answer.dump(2);
  return nlohmann::json::object();
}

std::string sentence(const nlohmann::json& verdict) { return verdict.value("sentence", ""); }
std::vector<int> ranks_of(const nlohmann::json& verdict) {
  return verdict.value("ranks", std::vector<int>{});
}

// Each test's group has a class of its own, by which it asks.
class Why : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { world_ = std::make_unique<World>(2); }
  static void TearDownTestSuite() { world_.reset(); }
  static World& world() { return *world_; }
  static Ranks group(const std::vector<int>& placement, const std::string& group_class,
                     int64_t timeout_ms = kAnswerMs) {
    return world_->group(placement, timeout_ms, group_class);
  }

 private:
  static std::unique_ptr<World> world_;
};
std::unique_ptr<World> Why::world_;

TEST_F(Why, NothingToDo) {
  const Ranks ranks = group({0, 1}, "idle");
  for (auto& rank : ranks) rank->start("barrier");
  for (auto& rank : ranks) ASSERT_EQ(rank->finish().result, HDT_SUCCESS);
  const auto verdict = await_verdict(world(), "idle", "nothing to do");
  ASSERT_EQ(verdict["table"].size(), 2U);
  for (const auto& row : verdict["table"]) {
    EXPECT_EQ(row["last"], "call 0 (barrier)") << row;
    EXPECT_EQ(row["calls"], 1);
  }
}

TEST_F(Why, LateRank) {
  const Ranks ranks = group({0, 0, 0}, "late");
  for (auto& rank : ranks) rank->start("barrier");
  for (auto& rank : ranks) ASSERT_EQ(rank->finish().result, HDT_SUCCESS);
  for (const size_t rank : {0, 2}) ranks[rank]->start("allreduce 1000 4 0");
  const auto verdict = await_verdict(world(), "late", "late rank");
  EXPECT_EQ(ranks_of(verdict), std::vector<int>{1});
  EXPECT_EQ(verdict["node"], "n0");
  EXPECT_EQ(verdict["operation"], "call 1 (allreduce of 1000 float32, sum)");
  EXPECT_THAT(sentence(verdict), AllOf(HasSubstr("not entered by rank 1 on node n0"), HasSubstr("sleeping"),
                                       HasSubstr("last operation was call 0 (barrier)")));
}

TEST_F(Why, LateRankOfAnotherNode) {
  const Ranks ranks = group({0, 1, 0}, "far");
  for (const size_t rank : {0, 2}) ranks[rank]->start("allreduce 1000 4 0");
  for (const int node : {0, 1}) {
    const auto verdict = await_verdict(world(), "far", "late rank", node);
    EXPECT_EQ(ranks_of(verdict), std::vector<int>{1});
    EXPECT_EQ(verdict["node"], "n1");
    EXPECT_THAT(sentence(verdict), HasSubstr("it has made no call before"));
  }
}

TEST_F(Why, StoppedProcess) {
  const Ranks ranks = group({0, 1}, "stopped");
  ranks[1]->process().signal(SIGSTOP);
  ranks[0]->start("allreduce 100000 4 0");
  const auto verdict = await_verdict(world(), "stopped", "stopped process");
  EXPECT_EQ(ranks_of(verdict), std::vector<int>{1});
  EXPECT_THAT(sentence(verdict), AllOf(HasSubstr("stopped by a signal"), HasSubstr("kill -CONT")));
  ranks[1]->process().signal(SIGCONT);
  ranks[1]->start("allreduce 100000 4 0");
  for (auto& rank : ranks) EXPECT_EQ(rank->finish().result, HDT_SUCCESS);
}

TEST_F(Why, DeadRankWhoseLastOperationsAreKept) {
  const Ranks ranks = group({0, 1}, "dead");
  for (auto& rank : ranks) rank->start("barrier");
  for (auto& rank : ranks) ASSERT_EQ(rank->finish().result, HDT_SUCCESS);
  ranks[0]->start("allreduce 1000 4 0");
  ranks[1]->process().signal(SIGKILL);
  ASSERT_EQ(ranks[0]->finish().result, HDT_ERR_RANK_LOST);
  const auto verdict = await_verdict(world(), "dead", "dead rank");
  EXPECT_EQ(ranks_of(verdict), std::vector<int>{1});
  ASSERT_EQ(verdict["table"].size(), 2U);
  const auto& dead = verdict["table"][verdict["table"][0]["rank"] == 1 ? 0 : 1];
  EXPECT_EQ(dead["last"], "call 0 (barrier)");
  EXPECT_THAT(dead["end"].get<std::string>(), HasSubstr("ended without leaving"));
}

TEST_F(Why, RankLeftEarly) {
  const Ranks ranks = group({0, 1}, "left");
  EXPECT_EQ(ranks[1]->call("destroy").result, HDT_SUCCESS);
  EXPECT_EQ(ranks[0]->call("barrier").result, HDT_ERR_RANK_LOST);
  EXPECT_EQ(ranks_of(await_verdict(world(), "left", "rank departed early")), std::vector<int>{1});
}

TEST_F(Why, Aborted) {
  const Ranks ranks = group({0, 1}, "aborted");
  ranks[0]->start("allreduce 1000 4 0");
  EXPECT_EQ(ranks[1]->call("abort").result, HDT_SUCCESS);
  EXPECT_EQ(ranks_of(await_verdict(world(), "aborted", "aborted")), std::vector<int>{1});
}

TEST_F(Why, CallsOfDifferentSize) {
  const Ranks ranks = group({0, 1}, "sizes");
  ranks[0]->start("allreduce 100 4 0");
  ranks[1]->start("allreduce 101 4 0");
  const auto verdict = await_verdict(world(), "sizes", "mismatched call");
  EXPECT_THAT(sentence(verdict), AllOf(HasSubstr("100 float32"), HasSubstr("101 float32")));
}

TEST_F(Why, CallsOfDifferentKind) {
  const Ranks ranks = group({0, 0}, "kinds");
  ranks[0]->start("allreduce 100 4 0");
  ranks[1]->start("broadcast 100 4 0");
  const auto verdict = await_verdict(world(), "kinds", "mismatched call");
  EXPECT_THAT(sentence(verdict), AllOf(HasSubstr("allreduce"), HasSubstr("broadcast")));
}

// Between nodes a mismatch is found when all have entered; here the third rank has not, and nobody has
// failed.
TEST_F(Why, DifferentCallsBeforeTheGroupFailsOverThem) {
  const Ranks ranks = group({0, 0, 1, 1}, "early");
  ranks[0]->start("allreduce 100 4 0");
  ranks[2]->start("allreduce 200 4 0");
  const auto verdict = await_verdict(world(), "early", "mismatched call");
  EXPECT_THAT(sentence(verdict), AllOf(HasSubstr("rank 0 calls"), HasSubstr("rank 2 calls")));
}

TEST_F(Why, GroupsInDifferentOrder) {
  Ranks ranks = group({0, 1}, "first");
  for (auto& rank : ranks) ASSERT_EQ(rank->call("second").result, HDT_SUCCESS);
  World::join(ranks, kAnswerMs, "second");
  ranks[0]->start("barrier");
  ASSERT_EQ(ranks[1]->call("second").result, HDT_SUCCESS);
  ranks[1]->start("allreduce 8 4 0");
  for (const char* group_class : {"first", "second"}) {
    const auto verdict = await_verdict(world(), group_class, "wrong order");
    EXPECT_EQ(ranks_of(verdict).size(), 2U);
    EXPECT_THAT(sentence(verdict), AllOf(HasSubstr("class first"), HasSubstr("class second"),
                                         HasSubstr("barrier"), HasSubstr("allreduce")));
  }
}

TEST_F(Why, RanksReceiveFromEachOther) {
  const Ranks ranks = group({0, 1}, "receive");
  ranks[0]->start("recv 10 4 1");
  ranks[1]->start("recv 10 4 0");
  EXPECT_EQ(ranks_of(await_verdict(world(), "receive", "wrong order")).size(), 2U);
}

TEST_F(Why, MessageThatIsNotSent) {
  const Ranks ranks = group({0, 1}, "unsent");
  ranks[0]->start("recv 10 4 1");
  const auto verdict = await_verdict(world(), "unsent", "unmatched message");
  EXPECT_EQ(ranks_of(verdict), std::vector<int>{1});
  EXPECT_THAT(sentence(verdict),
              AllOf(HasSubstr("has not sent message 0 (40 bytes)"), HasSubstr("to rank 0")));
}

TEST_F(Why, MessageThatNobodySends) {
  const Ranks ranks = group({0, 1}, "nobody");
  ranks[1]->start("recv_any 10 4 0");
  const auto verdict = await_verdict(world(), "nobody", "unmatched message");
  EXPECT_THAT(sentence(verdict),
              AllOf(HasSubstr("has sent a message to rank 1"), HasSubstr("from any rank")));
}

TEST_F(Why, MessageThatIsNotReceived) {
  const Ranks ranks = group({0, 0}, "unreceived");
  ranks[0]->start("send 10000000 4 1");  // more than the ring between them holds
  const auto verdict = await_verdict(world(), "unreceived", "unmatched message");
  EXPECT_EQ(ranks_of(verdict), std::vector<int>{1});
  EXPECT_THAT(sentence(verdict), HasSubstr("has not received message 0"));
}

TEST_F(Why, MessagesOfDifferentSize) {
  const Ranks ranks = group({0, 1}, "message");
  ranks[0]->start("send 10 4 1");
  ranks[1]->start("recv 11 4 0");
  EXPECT_THAT(sentence(await_verdict(world(), "message", "mismatched call")), HasSubstr("40 bytes"));
}

TEST_F(Why, TheDeadlinesErrorIsTheVerdict) {
  const Ranks ranks = group({0, 1}, "deadline", 700);
  ranks[1]->process().signal(SIGSTOP);
  const Answer answer = ranks[0]->call("barrier");
  EXPECT_EQ(answer.result, HDT_ERR_TIMEOUT);
  EXPECT_THAT(answer.text,
              AllOf(HasSubstr("700 ms passed in call 0 (barrier)"), HasSubstr("stopped process: rank 1")));
  EXPECT_THAT(sentence(await_verdict(world(), "deadline", "deadline passed")),
              HasSubstr("stopped process: rank 1"));
  ranks[1]->process().signal(SIGCONT);
}

TEST_F(Why, GroupsThatHaveEndedAreRemembered) {
  for (const Ranks ranks = group({0, 1}, "over"); const auto& rank : ranks)
    EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
  await_verdict(world(), "over", "nothing to do", 0, "its ranks here have departed");
}

TEST_F(Why, UnknownGroupsAreRefused) {
  const ProgramRun run = run_program({HDT_HDTCTL, "--socket", world().node(0).socket(), "why", "absent"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.errors, HasSubstr("no group 'absent'"));
}

TEST(WhyOfDaemons, StoppedDaemonIsUnreachable) {
  World world(2);
  const Ranks ranks = world.group({0, 1}, kAnswerMs, "silent");
  ranks[0]->start("allreduce 1000 4 0");
  world.node(1).process().signal(SIGSTOP);
  const auto verdict = await_verdict(world, "silent", "unreachable daemon");
  EXPECT_EQ(verdict["node"], "n1");
  EXPECT_EQ(ranks_of(verdict), std::vector<int>{1});
  world.node(1).process().signal(SIGCONT);
}

TEST(WhyOfDaemons, KilledDaemonIsUnreachable) {
  World world(2);
  const Ranks ranks = world.group({0, 1}, kAnswerMs, "killed");
  ranks[0]->start("allreduce 1000 4 0");
  world.node(1).process().signal(SIGKILL);
  EXPECT_EQ(await_verdict(world, "killed", "unreachable daemon")["node"], "n1");
}

}  // namespace
}  // namespace hdt::testing
