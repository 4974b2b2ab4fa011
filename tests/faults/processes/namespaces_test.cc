// namespaces_test.cc: ranks of one node that are in PID namespaces of their own, as with a container for
// each: there each is pid 1, and has its memory at the same addresses as the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "base/seqpacket.h"
#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeardMs = 1'000;
constexpr int kCalls = 10;

class NamespacesOfRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: namespaces of processes are made by root";
  }
  static void expect_sums(std::vector<std::unique_ptr<RankProcess>>& ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank]->start("sums " + std::to_string(rank) + " " + std::to_string(ranks.size()) + " 1000000 " +
                         std::to_string(kCalls));
    }
    for (auto& rank : ranks) {
      const Answer answer = rank->finish();
      EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
      EXPECT_EQ(answer.text, "0 wrong");
    }
  }
};

class Namespaces : public NamespacesOfRanks, public ::testing::WithParamInterface<const char*> {};

TEST_P(Namespaces, WrongValuesNeverComeWithSuccess) {
  World world(1);
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    std::map<std::string, std::string> environment = {{"HDT_SOCKET", world.node(0).socket()}};
    // The last one is where the daemon is, and has a number that the others may have, too.
    if (rank < 2) environment["HDT_TEST_APART"] = GetParam();
    ranks.push_back(std::make_unique<RankProcess>(world.folder(), environment));
  }
  World::join(ranks, kAnswerMs, "");
  expect_sums(ranks);
  // For its users the daemon names processes as it sees them, not as they see themselves.
  const auto status = nlohmann::json::parse(
      run_program({HDT_HDTCTL, "--socket", world.node(0).socket(), "status", "--json"}).output, nullptr,
      false);
  ASSERT_TRUE(status.is_object());
  std::set<int> pids;
  for (const auto& rank : status["groups"][0]["local"]) pids.insert(rank["pid"].get<int>());
  EXPECT_EQ(pids.size(), 3U) << status.dump(2);
  EXPECT_FALSE(pids.contains(1)) << status.dump(2);
}

// The first of them hosts the node's daemon: who that is does not follow from its number.
TEST_F(NamespacesOfRanks, TheHostOfTheDaemonIsNamed) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<RankProcess>(
        folder, std::map<std::string, std::string>{{"HDT_NODE_NAME", "apart"},
                                                   {"HDT_NICS_ADDRESSES", "127.0.1.1"},
                                                   {"XDG_RUNTIME_DIR", folder.path()},
                                                   {"HDT_TEST_APART", "pid"}}));
  }
  // Rank 1 of the group is the one that hosts.
  std::swap(ranks[0], ranks[1]);
  ASSERT_EQ(ranks[1]->call("id").result, HDT_SUCCESS);
  World::join(ranks, kAnswerMs, "");
  expect_sums(ranks);
  ranks[0]->start("sums 0 2 100000 1");
  ranks[1]->process().signal(SIGKILL);
  const Answer answer = ranks[0]->finish(kHeardMs);
  EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 1 (pid 1), which hosted"));
}

INSTANTIATE_TEST_SUITE_P(All, Namespaces, ::testing::Values("pid", "user"),
                         [](const auto& which) { return which.param; });

// All users that a user namespace has no number for have the same one there: a folder of "this user" may be
// anybody's.
TEST_F(NamespacesOfRanks, AUserWithoutANumberHostsNoDaemon) {
  const TemporaryFolder folder;
  RankProcess rank(
      folder, {{"HDT_NODE_NAME", "apart"}, {"XDG_RUNTIME_DIR", folder.path()}, {"HDT_TEST_APART", "user"}});
  const Answer answer = rank.call("id");
  EXPECT_EQ(answer.result, HDT_ERR_SYSTEM) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("HDT_SOCKET"));
}

// A daemon in a container, ranks outside of it: their processes have no number there.
TEST(DaemonApart, SeesTheEndOfAProcessThatHasNoNumberThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: namespaces of processes are made by root";
  const TemporaryFolder folder;
  const std::string socket = folder.file("apart.sock");
  ChildProcess daemon({"/usr/bin/unshare", "--pid", "--fork", "--kill-child", NodeProcess::program(),
                       "--node.socket", socket, "--nics.addresses", "127.0.1.1", "--nics.port", "0"},
                      {}, folder.file("daemon.log"));
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  while (!connect_seqpacket(socket).is_ok()) {
    ASSERT_FALSE(deadline.expired() || daemon.wait(Deadline::after_ms(2))) << daemon.errors();
  }
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(
        std::make_unique<RankProcess>(folder, std::map<std::string, std::string>{{"HDT_SOCKET", socket}}));
  }
  World::join(ranks, kAnswerMs, "");
  const Answer child = ranks[1]->call("child clone");
  ranks[0]->start("sums 0 2 100000 1");
  ranks[1]->process().signal(SIGKILL);
  const Answer answer = ranks[0]->finish(kHeardMs);
  ::kill(std::atoi(child.text.c_str()), SIGKILL);
  EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("not seen from here"));
}

}  // namespace
}  // namespace hdt::testing
