// node_end_test.cc: all processes of a node end at once; and nobody's death ends groups that it is not in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

using Ranks = std::vector<std::unique_ptr<RankProcess>>;

const std::vector<std::string> kNobodyComesBack = {"--timeouts.restart_ms", "0", "--link.wait_ms", "500"};

void kill_node(World& world, int node, Ranks& its_ranks) {
  for (auto& rank : its_ranks) rank->process().signal(SIGKILL);
  world.node(node).process().signal(SIGKILL);
  for (auto& rank : its_ranks) ASSERT_TRUE(rank->process().wait(Deadline::after_ms(kAnswerMs)).has_value());
  ASSERT_TRUE(world.node(node).process().wait(Deadline::after_ms(kAnswerMs)).has_value());
}

void expect_sum(Ranks& ranks, const std::string& sum) {
  for (auto& rank : ranks) rank->start("sum 7");
  for (auto& rank : ranks) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr(sum));
  }
}

// Two groups over three nodes, and one over two of them: what the first two lose, the third does not notice.
TEST(NodeEnd, FailsItsGroupsWithTheNodesNameAndLeavesTheOthers) {
  World world(3, {kNobodyComesBack, kNobodyComesBack, kNobodyComesBack});
  Ranks ranks = world.group({0, 0, 1, 2});
  Ranks others = world.group({1, 2});
  for (size_t rank = 2; rank < 4; ++rank) ranks[rank]->start("allreduce 5000000 4 0");
  EXPECT_EQ(ranks[2]->finish(20).result, HDT_IN_PROGRESS);
  Ranks lost;
  for (int i = 0; i < 2; ++i) {
    lost.push_back(std::move(ranks.front()));
    ranks.erase(ranks.begin());
  }
  kill_node(world, 0, lost);
  for (auto& rank : ranks) {
    const Answer answer = rank->finish();
    EXPECT_THAT(answer.result, AnyOf(HDT_ERR_RANK_LOST, HDT_ERR_LINK)) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("n0"));
  }
  expect_sum(others, "14");
  for (auto& rank : ranks) rank->start("shrink 30000 0 1");
  for (auto& rank : ranks) EXPECT_EQ(rank->finish().result, HDT_SUCCESS);
  for (auto& rank : ranks) EXPECT_EQ(rank->call("second").result, HDT_SUCCESS);
  expect_sum(ranks, "14");
}

// Its id names a daemon on a node that has no rank of the group.
TEST(NodeEnd, OfTheOneWhereAGroupWasMadeIsNotNoticed) {
  World world(3, {kNobodyComesBack, kNobodyComesBack, kNobodyComesBack});
  Ranks makers, ranks;
  makers.push_back(world.rank_on(0));
  const Answer id = makers[0]->call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  for (int node : {1, 2}) ranks.push_back(world.rank_on(node));
  for (size_t rank = 0; rank < 2; ++rank)
    ranks[rank]->start("join 2 " + std::to_string(rank) + " 30000 " + id.text);
  for (auto& rank : ranks) {
    const Answer joined = rank->finish();
    ASSERT_EQ(joined.result, HDT_SUCCESS) << joined.text;
  }
  for (auto& rank : ranks) rank->start("allreduce 5000000 4 0");
  kill_node(world, 0, makers);
  for (auto& rank : ranks) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
  }
  expect_sum(ranks, "14");
  for (auto& rank : ranks) rank->start("destroy");
  for (auto& rank : ranks) EXPECT_EQ(rank->finish().result, HDT_SUCCESS);
}

}  // namespace
}  // namespace hdt::testing
