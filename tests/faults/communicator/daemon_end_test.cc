// daemon_end_test.cc: daemons that are absent, killed, stopped in order, or embedded in a process that dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class NoDaemon : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  void expect_refused(const std::string& socket) {
    RankProcess rank(folder_, {{"HDT_SOCKET", socket}});
    const Answer answer = rank.call("init");
    EXPECT_EQ(answer.result, HDT_ERR_NO_DAEMON) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr(socket));
  }
};

TEST_F(NoDaemon, AbsentSocket) { expect_refused(folder_.file("absent.sock")); }

TEST_F(NoDaemon, NotASocket) {
  std::ofstream(folder_.file("file")) << "text";
  expect_refused(folder_.file("file"));
}

TEST_F(NoDaemon, StaleSocket) {
  const std::string path = folder_.file("stale.sock");
  {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  expect_refused(path);
}

TEST(DaemonEnd, KilledOneThatNobodyStartsAgainTellsItsClientsAndTheOtherNodes) {
  World world(2, {{"--timeouts.restart_ms", "0"}, {"--timeouts.restart_ms", "0"}});
  auto ranks = world.group({0, 0, 1});
  ranks[0]->start("barrier");
  ranks[1]->start("recv 10 4 2");
  ranks[2]->start("recv 10 4 0");
  EXPECT_EQ(ranks[0]->finish(20).result, HDT_IN_PROGRESS);
  world.node(0).process().signal(SIGKILL);
  EXPECT_EQ(ranks[0]->finish().result, HDT_ERR_DAEMON_LOST);
  EXPECT_EQ(ranks[1]->finish().result, HDT_ERR_DAEMON_LOST);
  const Answer other = ranks[2]->finish();
  EXPECT_THAT(other.result, AnyOf(HDT_ERR_LINK, HDT_ERR_RANK_LOST)) << other.text;
  EXPECT_THAT(other.text, HasSubstr("n0"));
  EXPECT_EQ(ranks[1]->call("destroy").result, HDT_SUCCESS);
}

TEST(DaemonEnd, InOrderWithIdleSessions) {
  World world(1);
  auto idle = world.rank_on(0);
  ASSERT_EQ(idle->call("id").result, HDT_SUCCESS);  // a session without a group
  world.node(0).process().signal(SIGTERM);
  EXPECT_EQ(world.node(0).process().wait(Deadline::after_ms(kAnswerMs)), 0);
  EXPECT_FALSE(std::filesystem::exists(world.node(0).socket()));
  EXPECT_EQ(idle->call("init").result, HDT_ERR_NO_DAEMON);
}

TEST(DaemonEnd, InOrderTellsOperationsInFlightOnAllNodes) {
  World world(2, {{"--timeouts.drain_ms", "100"}});
  auto ranks = world.group({0, 0, 1});
  ranks[0]->start("barrier");
  ranks[2]->start("barrier");
  EXPECT_EQ(ranks[0]->finish(20).result, HDT_IN_PROGRESS);
  world.node(0).process().signal(SIGTERM);
  for (size_t rank : {0, 2}) {
    const Answer answer = ranks[rank]->finish();
    EXPECT_EQ(answer.result, HDT_ERR_DAEMON_LOST) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("stopped by SIGTERM"));
  }
  EXPECT_EQ(world.node(0).process().wait(Deadline::after_ms(kAnswerMs)), 0);
}

// Calls under way are finished when they can be, with or without another node.
class DaemonEndInOrder : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(DaemonEndInOrder, LetsOperationsFinish) {
  World world(2);
  auto ranks = world.group(GetParam());
  ranks[0]->start("allreduce 1000000 4 0");
  world.await_entered(0, 0, 1);
  world.node(0).process().signal(SIGTERM);
  EXPECT_EQ(ranks[0]->finish(20).result, HDT_IN_PROGRESS);
  ranks[1]->start("allreduce 1000000 4 0");
  for (auto& rank : ranks) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
  }
  for (auto& rank : ranks) EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
  EXPECT_EQ(world.node(0).process().wait(Deadline::after_ms(kAnswerMs)), 0);
}

INSTANTIATE_TEST_SUITE_P(All, DaemonEndInOrder,
                         ::testing::Values(std::vector<int>{0, 0}, std::vector<int>{0, 1}),
                         [](const auto& shape) { return shape.param[1] == 0 ? "OneNode" : "TwoNodes"; });

// A receiver that stands still meanwhile finds what had arrived before the daemon's end.
TEST(DaemonEnd, InOrderLosesNothingThatWasSent) {
  World world(2);
  auto ranks = world.group({0, 1});
  ranks[1]->start("recv 5000 4 0");
  EXPECT_EQ(ranks[1]->finish(200).result, HDT_IN_PROGRESS);
  ranks[1]->process().signal(SIGSTOP);
  ASSERT_EQ(ranks[0]->call("send 5000 4 1").result, HDT_SUCCESS);
  world.node(0).process().signal(SIGTERM);
  EXPECT_EQ(world.node(0).process().wait(Deadline::after_ms(kAnswerMs)), 0);
  EXPECT_EQ(ranks[0]->call("barrier").result, HDT_ERR_DAEMON_LOST);
  ranks[1]->process().signal(SIGCONT);
  const Answer received = ranks[1]->finish();
  EXPECT_EQ(received.result, HDT_SUCCESS) << received.text;
}

// The flags of a daemon that has this key, which is written to the folder.
std::vector<std::string> flags_of_key(const TemporaryFolder& folder, const std::string& name,
                                      const std::string& key) {
  using std::filesystem::perms;
  std::ofstream(folder.file(name)) << key;
  std::filesystem::permissions(folder.file(name), perms::owner_read | perms::owner_write);
  return {"--security.cluster_key_file", folder.file(name)};
}

TEST(ClusterKey, TheSameWorksAndOthersAreRefusedWithTheReason) {
  TemporaryFolder keys;
  const auto a = flags_of_key(keys, "a", "a key of the cluster, long enough");
  const auto b = flags_of_key(keys, "b", "another key, long enough as well");
  {
    World same(2, {a, a});
    same.expect_serving();
  }
  for (const auto& other : {b, std::vector<std::string>{}}) {
    World world(2, {a, other});
    auto near = world.rank_on(0);
    auto far = world.rank_on(1);
    const Answer id = near->call("id");
    ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
    near->start("join 2 0 1500 " + id.text);
    const Answer answer = far->call("join 2 1 1500 " + id.text);
    EXPECT_NE(answer.result, HDT_SUCCESS);
    EXPECT_THAT(answer.text + world.node(0).process().errors(), HasSubstr("cluster key"));
    EXPECT_THAT(near->finish().text, HasSubstr("rank 1"));
  }
}

TEST(ClusterKey, NodesThatProtectTheirPayloadDifferentlyRefuseEachOther) {
  TemporaryFolder keys;
  const auto key = flags_of_key(keys, "a", "a key of the cluster, long enough");
  const auto flags = [&](const char* transport) {
    auto all = key;
    all.insert(all.end(), {"--security.transport", transport});
    return all;
  };
  {
    World same(2, {flags("encrypt"), flags("encrypt")});
    same.expect_serving();
  }
  for (const char* other : {"encrypt", "none"}) {
    World world(2, {flags("mac"), flags(other)});
    auto near = world.rank_on(0);
    auto far = world.rank_on(1);
    const Answer id = near->call("id");
    ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
    near->start("join 2 0 30000 " + id.text);
    const Answer answer = far->call("join 2 1 30000 " + id.text);
    EXPECT_NE(answer.result, HDT_SUCCESS);
    EXPECT_THAT(answer.text, HasSubstr("security.transport")) << other;
    EXPECT_THAT(near->finish().text, HasSubstr("security.transport")) << other;
  }
  EXPECT_THROW(World(1, {{"--security.transport", "mac"}}), std::runtime_error) << "no key";
}

// Two processes of a user find the same daemon; when its host dies, that rank is what was lost.
TEST(Embedded, TheSecondProcessFindsTheHostAndIsToldOfItsDeath) {
  TemporaryFolder folder;
  std::filesystem::permissions(folder.file(""), std::filesystem::perms::owner_all);
  // A node name of its own keeps the test away from a daemon of the system.
  const std::map<std::string, std::string> environment = {{"XDG_RUNTIME_DIR", folder.file("")},
                                                          {"HDT_NODE_NAME", "embedded"},
                                                          {"HDT_NICS_ADDRESSES", "127.0.1.9"}};
  RankProcess host(folder, environment);
  const Answer id = host.call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  RankProcess guest(folder, environment);
  host.start("join 2 0 30000 " + id.text);
  const Answer joined = guest.call("join 2 1 30000 " + id.text);
  ASSERT_EQ(joined.result, HDT_SUCCESS) << joined.text;
  ASSERT_EQ(host.finish().result, HDT_SUCCESS);
  host.start("barrier");
  ASSERT_EQ(guest.call("barrier").result, HDT_SUCCESS);
  ASSERT_EQ(host.finish().result, HDT_SUCCESS);
  guest.start("barrier");
  EXPECT_EQ(guest.finish(20).result, HDT_IN_PROGRESS);
  host.process().signal(SIGKILL);
  const Answer told = guest.finish(1'000);
  EXPECT_EQ(told.result, HDT_ERR_RANK_LOST) << told.text;
  EXPECT_THAT(told.text, HasSubstr("rank 0"));
}

}  // namespace
}  // namespace hdt::testing
