// several_nodes_test.cc: groups of several nodes outlive their daemons: one that is killed at any moment and
// started again finishes what was under way, with the same bits, and nothing fails on the other nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "tests/faults/restart/working_ranks.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* name;
  std::vector<int> placement;
  bool in_place = false;
  bool both = false;  // two daemons at once
  const char* algorithm = "auto";
};

class SeveralNodes : public ::testing::TestWithParam<Case> {};

TEST_P(SeveralNodes, WorkOutlivesDaemonsThatAreKilledAtAnyMoment) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  const int nodes = *std::max_element(GetParam().placement.begin(), GetParam().placement.end()) + 1;
  auto flags = with_ports(nodes);
  for (auto& of_node : flags)
    of_node.insert(of_node.end(), {"--class.default.algorithm", GetParam().algorithm});
  World world(nodes, flags);
  auto ranks = world.group(GetParam().placement);
  Work work(world, ranks, seed, GetParam().in_place);
  for (int kill = 0; kill < 5; ++kill) {
    sleep_ms(5 + random() % 150);
    const auto node = static_cast<int>(random() % static_cast<uint64_t>(nodes));
    const auto other = (node + 1) % nodes;
    work.expect_under_way();
    world.kill_daemon(node);
    if (GetParam().both) world.kill_daemon(other);
    sleep_ms(random() % 50);
    world.node(node).start();
    if (GetParam().both) world.node(other).start();
  }
  const std::string done = work.finish();
  // Undisturbed, it gives the same bits.
  Work again(world, ranks, seed, GetParam().in_place, std::stoull(done));
  EXPECT_EQ(again.finish(), done);
  for (auto& rank : ranks) EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
  world.expect_serving();
}

INSTANTIATE_TEST_SUITE_P(All, SeveralNodes,
                         ::testing::Values(Case{"TwoNodes", {0, 1}}, Case{"TwoRanksANode", {0, 0, 1, 1}},
                                           Case{"ThreeNodes", {0, 1, 2, 1}}, Case{"FourNodes", {0, 1, 2, 3}},
                                           Case{"InPlaceOfTwo", {0, 1}, true},
                                           Case{"InPlaceOfThree", {0, 1, 2}, true},
                                           Case{"PairwiseOfThree", {0, 1, 2}, false, false, "pairwise"},
                                           Case{"PairwiseInPlace", {0, 1, 2}, true, false, "pairwise"},
                                           Case{"BothAtOnce", {0, 0, 1}, false, true},
                                           Case{"BothAtOnceInPlace", {0, 1}, true, true},
                                           Case{"TwoOfThree", {0, 1, 2}, false, true}),
                         [](const auto& tested) { return tested.param.name; });

// The next one dies, too, before it has found the others, or while it does.
TEST(SeveralNodesRestart, OneThatIsKilledAgainAtOnce) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  World world(2);
  auto ranks = world.group({0, 1});
  Work work(world, ranks, seed, false);
  for (int round = 0; round < 3; ++round) {
    sleep_ms(20);
    work.expect_under_way();
    for (int kill = 0; kill < 3; ++kill) {
      world.kill_daemon(1);
      world.node(1).start();
      sleep_ms(random() % 25);
    }
  }
  work.finish();
}

TEST(SeveralNodesRestart, OperationsThatBeginMeanwhileWait) {
  World world(2);
  auto ranks = world.group({0, 1, 1});
  world.kill_daemon(1);
  for (auto& rank : ranks) rank->start("allreduce 100000 4 0");
  for (auto& rank : ranks) EXPECT_EQ(rank->finish(50).result, HDT_IN_PROGRESS);
  world.node(1).start();
  for (auto& rank : ranks) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
  }
}

// A message that a rank has sent arrives, also if the rank departs while nobody is there to take it.
TEST(SeveralNodesRestart, WhatWasSentMeanwhileArrives) {
  World world(2);
  auto ranks = world.group({0, 1});
  world.kill_daemon(1);
  EXPECT_EQ(ranks[0]->call("send 100 4 1").result, HDT_SUCCESS);
  EXPECT_EQ(ranks[0]->call("send 50000 4 1").result, HDT_SUCCESS);
  EXPECT_EQ(ranks[0]->call("destroy").result, HDT_SUCCESS);
  world.node(1).start();
  for (const char* call : {"recv 100 4 0", "recv 50000 4 0", "destroy"}) {
    const Answer answer = ranks[1]->call(call);
    EXPECT_EQ(answer.result, HDT_SUCCESS) << call << ": " << answer.text;
  }
  world.expect_serving();
}

TEST(SeveralNodesRestart, WithoutASuccessorTheWaitEndsEverywhereWithTheReason) {
  const std::vector<std::string> flags = {"--timeouts.restart_ms", "200"};
  World world(3, {flags, flags, flags});
  auto ranks = world.group({0, 1, 2});
  for (auto& rank : ranks) rank->start("recv 10 4 0");
  EXPECT_EQ(ranks[0]->finish(20).result, HDT_IN_PROGRESS);
  world.kill_daemon(1);
  for (size_t rank : {0, 2}) {
    const Answer answer = ranks[rank]->finish();
    EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("node n1"));
    EXPECT_THAT(answer.text, HasSubstr("its daemon sent no message within 200 ms"));
  }
  const Answer own = ranks[1]->finish();
  EXPECT_EQ(own.result, HDT_ERR_DAEMON_LOST) << own.text;
  EXPECT_THAT(own.text, HasSubstr("was not started again within 200 ms"));
}

// One of two ranks of the node dies without a daemon: the next one misses it and tells all.
TEST(SeveralNodesRestart, ARankThatDiesMeanwhileIsMissed) {
  const std::vector<std::string> flags = {"--timeouts.restart_ms", "1500"};
  World world(2, {flags, flags});
  auto ranks = world.group({0, 1, 1});
  ranks[0]->start("barrier");
  world.kill_daemon(1);
  ranks[2]->process().signal(SIGKILL);
  ASSERT_TRUE(ranks[2]->process().wait(Deadline::after_ms(kAnswerMs)).has_value());
  world.node(1).start();
  const Answer other = ranks[0]->finish();
  EXPECT_EQ(other.result, HDT_ERR_RANK_LOST) << other.text;
  EXPECT_THAT(other.text, HasSubstr("rank 2"));
  const Answer beside = ranks[1]->call("barrier");
  EXPECT_EQ(beside.result, HDT_ERR_RANK_LOST) << beside.text;
  EXPECT_THAT(beside.text, HasSubstr("rank 2"));
  world.expect_serving();
}

// A group that fails while a daemon is away has failed for it, too.
TEST(SeveralNodesRestart, AGroupThatFailsMeanwhileHasFailedForTheNextDaemon) {
  World world(2);
  auto ranks = world.group({0, 1});
  ranks[1]->start("barrier");
  EXPECT_EQ(ranks[1]->finish(20).result, HDT_IN_PROGRESS);
  world.kill_daemon(1);
  EXPECT_EQ(ranks[0]->call("abort").result, HDT_SUCCESS);
  world.node(1).start();
  const Answer answer = ranks[1]->finish();
  EXPECT_EQ(answer.result, HDT_ERR_ABORTED) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 0 aborted"));
}

}  // namespace
}  // namespace hdt::testing
