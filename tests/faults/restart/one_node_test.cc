// one_node_test.cc: a group of one node outlives its daemon: operations go on without it, and its successor
// adopts the group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

void run_on_all(std::vector<std::unique_ptr<RankProcess>>& ranks, const std::string& call) {
  for (auto& rank : ranks) rank->start(call);
  for (auto& rank : ranks) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << call << ": " << answer.text;
  }
}

TEST(OneNode, OperationsGoOnWithoutADaemonAndWithTheNextOne) {
  World world(1);
  auto ranks = world.group({0, 0, 0});
  run_on_all(ranks, "allreduce 100000 4 0");
  for (int round = 0; round < 3; ++round) {
    world.kill_daemon(0);
    run_on_all(ranks, "allreduce 100000 4 0");
    world.node(0).start();
    run_on_all(ranks, "allreduce 100000 4 0");
  }
  world.expect_serving();
  run_on_all(ranks, "destroy");
}

// The successor knows the ranks: it tells the others of one that dies.
TEST(OneNode, TheNextDaemonTellsOfARankThatDies) {
  World world(1);
  auto ranks = world.group({0, 0});
  run_on_all(ranks, "barrier");
  world.kill_daemon(0);
  world.node(0).start();
  world.await_ready(0);
  ranks[0]->start("barrier");
  ranks[1]->process().signal(SIGKILL);
  const Answer answer = ranks[0]->finish();
  EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 1"));
}

TEST(OneNode, ARankThatDiesWithoutADaemonIsMissedByTheNextOne) {
  World world(1, {{"--timeouts.restart_ms", "2000"}});
  auto ranks = world.group({0, 0});
  run_on_all(ranks, "barrier");
  world.kill_daemon(0);
  ranks[1]->process().signal(SIGKILL);
  ASSERT_TRUE(ranks[1]->process().wait(Deadline::after_ms(kAnswerMs)).has_value());
  world.node(0).start();
  const Answer answer = ranks[0]->call("barrier");
  EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 1"));
}

TEST(OneNode, RanksThatLeaveWithoutADaemonHaveLeft) {
  World world(1);
  auto ranks = world.group({0, 0, 0});
  run_on_all(ranks, "barrier");
  world.kill_daemon(0);
  EXPECT_EQ(ranks[2]->call("destroy").result, HDT_SUCCESS);
  world.node(0).start();
  EXPECT_EQ(ranks[1]->call("destroy").result, HDT_SUCCESS);
  EXPECT_EQ(ranks[0]->call("destroy").result, HDT_SUCCESS);
  world.expect_serving();
}

// A request that needs the daemon waits for it; what can be asked again is.
TEST(OneNode, RequestsWaitForTheNextDaemon) {
  World world(1);
  auto ranks = world.group({0, 0});
  world.kill_daemon(0);
  ranks[0]->start("id");
  EXPECT_EQ(ranks[0]->finish(50).result, HDT_IN_PROGRESS);
  world.node(0).start();
  const Answer id = ranks[0]->finish();
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  auto newcomer = world.rank_on(0);
  EXPECT_EQ(newcomer->call("join 1 0 30000 " + id.text).result, HDT_SUCCESS);
  run_on_all(ranks, "barrier");
}

TEST(OneNode, WithoutASuccessorTheWaitEnds) {
  World world(1, {{"--timeouts.restart_ms", "100"}});
  auto ranks = world.group({0, 0});
  ranks[0]->start("barrier");
  EXPECT_EQ(ranks[0]->finish(20).result, HDT_IN_PROGRESS);
  world.kill_daemon(0);
  const Answer answer = ranks[0]->finish();
  EXPECT_EQ(answer.result, HDT_ERR_DAEMON_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("was not started again within 100 ms"));
}

}  // namespace
}  // namespace hdt::testing
