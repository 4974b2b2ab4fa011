// fork_test.cc: children of a rank that call nothing of HDT end in any way, at any moment, and disturb
// nothing; those that call something are told that they cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

// Ranks by a daemon of their own, or by one that lives in the first of them.
class Fork : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::map<std::string, std::string> environment = {{"HDT_NODE_NAME", "forking"},
                                                      {"HDT_NICS_ADDRESSES", "127.0.1.1"},
                                                      {"XDG_RUNTIME_DIR", folder_.path()}};
    if (!GetParam()) {
      world_ = std::make_unique<World>(1);
      environment = {{"HDT_SOCKET", world_->node(0).socket()}};
    }
    for (int rank = 0; rank < 2; ++rank)
      ranks_.push_back(std::make_unique<RankProcess>(folder_, environment));
    World::join(ranks_, kAnswerMs, "");
  }
  void expect_sums(int calls = 3) {
    for (size_t rank = 0; rank < 2; ++rank) ranks_[rank]->start(fmt(rank, calls));
    for (auto& rank : ranks_) EXPECT_EQ(rank->finish().text, "0 wrong");
  }
  static std::string fmt(size_t rank, int calls) {
    return "sums " + std::to_string(rank) + " 2 300000 " + std::to_string(calls);
  }
  void expect_end(const std::string& how) {
    const Answer answer = ranks_[0]->call("ends " + how);
    EXPECT_EQ(answer.text, "0") << how << "\n" << ranks_[0]->process().errors();
  }

  TemporaryFolder folder_;
  std::unique_ptr<World> world_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
};

TEST_P(Fork, ChildrenEndInAnyWayWhileCallsAreUnderWay) {
  for (const std::string how : {"exit", "_exit", "exec", "kill"}) {
    ranks_[1]->start(fmt(1, 40));
    const Answer answer = ranks_[0]->call("children " + how + " 0 2 300000 40");
    EXPECT_EQ(answer.result, HDT_SUCCESS) << how;
    EXPECT_EQ(answer.text, "0 wrong") << how << "\n" << ranks_[0]->process().errors();
    EXPECT_EQ(ranks_[1]->finish().text, "0 wrong") << how;
  }
  EXPECT_EQ(ranks_[1]->call("ends exit").text, "0");
  expect_sums();
}

TEST_P(Fork, EveryCallOfAChildIsRefused) {
  ASSERT_EQ(ranks_[0]->call("allocate").result, HDT_SUCCESS);
  expect_sums();
  expect_end("calls");
  expect_sums();
}

// It is the user's, who may have made it for a worker to read; and it is shared, as ever.
TEST_P(Fork, MemoryOfHdtMemAllocIsThereInAChild) {
  ASSERT_EQ(ranks_[0]->call("allocate").result, HDT_SUCCESS);
  expect_end("read");
}

TEST_P(Fork, NothingIsOpenInAChild) {
  expect_sums();
  expect_end("descriptors");
  for (auto& rank : ranks_) EXPECT_EQ(rank->call("spawned").text, "none");
}

INSTANTIATE_TEST_SUITE_P(All, Fork, ::testing::Bool(),
                         [](const auto& by) { return by.param ? "Embedded" : "Daemon"; });

// The parent has used nothing yet: each child is a process like any other.
TEST(ForkBefore, ChildrenThatWereThereBeforeTheFirstCallMayCall) {
  World world(1);
  std::vector<std::unique_ptr<RankProcess>> ranks;
  ranks.push_back(world.rank_on(0));
  ranks.push_back(std::make_unique<RankProcess>(
      world.folder(),
      std::map<std::string, std::string>{{"HDT_SOCKET", world.node(0).socket()}, {"HDT_TEST_FORKED", "1"}}));
  World::join(ranks, kAnswerMs, "");
  for (size_t rank = 0; rank < 2; ++rank) ranks[rank]->start("sums " + std::to_string(rank) + " 2 100000 3");
  for (auto& rank : ranks) EXPECT_EQ(rank->finish().text, "0 wrong");
}

}  // namespace
}  // namespace hdt::testing
