// handover_test.cc: `hdtcommd --handover` at SIGTERM: an upgrade that no operation and no group being made
// notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "tests/faults/restart/working_ranks.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kHandover = {"--handover"};

void expect_end(World& world, int node) {
  const auto status = world.node(node).process().wait(Deadline::after_ms(kAnswerMs));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(*status, 0);
}

TEST(Handover, WorkGoesOnWithTheNextDaemon) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  World world(2, with_ports(2, kHandover));
  auto ranks = world.group({0, 0, 1});
  Work work(world, ranks, seed, false);
  for (int round = 0; round < 4; ++round) {
    sleep_ms(5 + random() % 100);
    work.expect_under_way();
    const auto node = static_cast<int>(random() % 2);
    world.node(node).process().signal(SIGTERM);
    expect_end(world, node);
    world.node(node).start();
  }
  const std::string done = work.finish();
  // Undisturbed, it gives the same bits.
  Work again(world, ranks, seed, false, std::stoull(done));
  EXPECT_EQ(again.finish(), done);
  for (auto& rank : ranks) EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
  world.expect_serving();
}

// Whoever is last to join is waited for. (A daemon that is killed at that moment fails the group.)
TEST(Handover, AGroupThatIsBeingMadeIsMadeFirst) {
  World world(2, {kHandover, kHandover});
  auto first = world.rank_on(0);
  auto second = world.rank_on(1);
  const Answer id = first->call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  first->start("join 2 0 30000 " + id.text);
  world.await_joins(0, 1);
  world.node(0).process().signal(SIGTERM);
  EXPECT_FALSE(world.node(0).process().wait(Deadline::after_ms(100)).has_value());
  const Answer joined = second->call("join 2 1 30000 " + id.text);
  EXPECT_EQ(joined.result, HDT_SUCCESS) << joined.text;
  EXPECT_EQ(first->finish().result, HDT_SUCCESS);
  expect_end(world, 0);
  world.node(0).start();
  first->start("allreduce 100000 4 0");
  const Answer sum = second->call("allreduce 100000 4 0");
  EXPECT_EQ(sum.result, HDT_SUCCESS) << sum.text;
  EXPECT_EQ(first->finish().result, HDT_SUCCESS);
}

// All ranks have joined, and the daemons have agreed on the group: it is not made before each rank has its
// seat and has been told of all others'. A rank that is stopped cannot take its own.
void expect_seats_to_be_awaited(int of_node) {
  World world(2, {kHandover, kHandover});
  Ranks ranks;
  for (int node = 0; node < 2; ++node) ranks.push_back(world.rank_on(node));
  const Answer id = ranks[0]->call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  const auto join = [&](int rank) {
    ranks[rank]->start("join 2 " + std::to_string(rank) + " 30000 " + id.text);
  };
  join(of_node);
  world.await_joins(0, 1);
  ranks[of_node]->process().signal(SIGSTOP);
  join(1 - of_node);
  for (int node = 0; node < 2; ++node) world.await_ready(node);
  world.node(0).process().signal(SIGTERM);
  EXPECT_FALSE(world.node(0).process().wait(Deadline::after_ms(300)).has_value());
  ranks[of_node]->process().signal(SIGCONT);
  for (auto& rank : ranks) {
    const Answer joined = rank->finish();
    EXPECT_EQ(joined.result, HDT_SUCCESS) << joined.text;
  }
  expect_end(world, 0);
  world.node(0).start();
  for (auto& rank : ranks) rank->start("allreduce 100000 4 0");
  for (auto& rank : ranks) {
    const Answer sum = rank->finish();
    EXPECT_EQ(sum.result, HDT_SUCCESS) << sum.text;
  }
}

TEST(Handover, ARankOfThisNodeTakesItsSeatFirst) { expect_seats_to_be_awaited(0); }
TEST(Handover, ARankOfAnotherNodeTakesItsSeatFirst) { expect_seats_to_be_awaited(1); }

// The daemons wait for a rank that never takes its seat no longer than for one that never joins.
TEST(Handover, WaitsForASeatNoLongerThanItMay) {
  World world(1, {{"--handover", "--timeouts.drain_ms", "200", "--timeouts.restart_ms", "200"}});
  Ranks ranks;
  for (int i = 0; i < 2; ++i) ranks.push_back(world.rank_on(0));
  const Answer id = ranks[0]->call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  ranks[0]->start("join 2 0 30000 " + id.text);
  world.await_joins(0, 1);
  ranks[0]->process().signal(SIGSTOP);
  ranks[1]->start("join 2 1 30000 " + id.text);
  world.await_ready(0);
  world.node(0).process().signal(SIGTERM);
  expect_end(world, 0);
}

TEST(Handover, WaitsForAGroupNoLongerThanItMay) {
  World world(1, {{"--handover", "--timeouts.drain_ms", "200", "--timeouts.restart_ms", "200"}});
  auto rank = world.rank_on(0);
  const Answer id = rank->call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  rank->start("join 2 0 30000 " + id.text);
  EXPECT_EQ(rank->finish(100).result, HDT_IN_PROGRESS);
  world.node(0).process().signal(SIGTERM);
  expect_end(world, 0);
  const Answer answer = rank->finish();
  EXPECT_EQ(answer.result, HDT_ERR_DAEMON_LOST) << answer.text;
}

// An end in order is still to be had.
TEST(Handover, SigintTellsEveryone) {
  World world(1, {{"--handover", "--timeouts.drain_ms", "200"}});
  auto ranks = world.group({0, 0});
  ranks[0]->start("barrier");
  EXPECT_EQ(ranks[0]->finish(50).result, HDT_IN_PROGRESS);
  world.node(0).process().signal(SIGINT);
  const Answer answer = ranks[0]->finish();
  EXPECT_EQ(answer.result, HDT_ERR_DAEMON_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("was stopped by SIGINT"));
  expect_end(world, 0);
}

}  // namespace
}  // namespace hdt::testing
