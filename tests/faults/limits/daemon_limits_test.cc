// daemon_limits_test.cc: a daemon that is at its limit of descriptors: who comes is refused in words, it
// sleeps, groups go on, and it takes sessions again when there is room.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/seqpacket.h"
#include "tests/faults/limits/limited_rank.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void set_descriptors(pid_t pid, rlim_t soft) {
  rlimit limit{};
  ASSERT_EQ(::prlimit(pid, RLIMIT_NOFILE, nullptr, &limit), 0);
  limit.rlim_cur = soft == RLIM_INFINITY ? limit.rlim_max : soft;
  ASSERT_EQ(::prlimit(pid, RLIMIT_NOFILE, &limit, nullptr), 0);
}

// Few wake-ups, which are counted exactly, and no spinning, which has none.
void expect_asleep(pid_t pid) {
  const int64_t awake = times_awake(pid), used_ms = processor_ms(pid);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the time over which it is counted
  EXPECT_LE(times_awake(pid) - awake, 60);
  EXPECT_LE(processor_ms(pid) - used_ms, 200);
}

TEST(DaemonLimits, SessionsAreRefusedByName) {
  LimitedWorld world;
  auto ranks = world.joined({0, 0, 1});
  const pid_t daemon = world.node(0).process().pid();
  const std::string limit = std::to_string(next_descriptor(daemon));
  set_descriptors(daemon, next_descriptor(daemon));
  auto late = world.alone(0);
  for (int i = 0; i < 20; ++i) {
    const Told told = late->call("init");
    ASSERT_EQ(told.result, HDT_ERR_SYSTEM) << told.text;
    ASSERT_THAT(told.text, AllOf(HasSubstr("process hdtcommd (pid " + std::to_string(daemon) + ")"),
                                 HasSubstr("limit of " + limit + " open files"), HasSubstr("LimitNOFILE")));
  }
  expect_asleep(daemon);
  expect_all(ranks, "sum");
  set_descriptors(daemon, RLIM_INFINITY);
  const Told told = late->call("init");
  EXPECT_EQ(told.result, HDT_SUCCESS) << told.text;
  expect_all(ranks, "split");
  expect_all(ranks, "sums");
}

// With room for the socket, but not for what a session has.
TEST(DaemonLimits, SessionsThatAreHalfMade) {
  LimitedWorld world;
  const pid_t daemon = world.node(0).process().pid();
  auto late = world.alone(0);
  for (size_t left = 1; left < 3; ++left) {
    set_descriptors(daemon, next_descriptor(daemon, left));
    const Told told = late->call("init");
    EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << told.text;
    EXPECT_THAT(told.text, HasSubstr("hdtcommd (pid " + std::to_string(daemon) + ")"));
  }
  set_descriptors(daemon, RLIM_INFINITY);
  EXPECT_EQ(late->call("init").result, HDT_SUCCESS);
  EXPECT_EQ(late->call("destroy").result, HDT_SUCCESS);
}

TEST(DaemonLimits, OneMoreGroupThanTheDaemonCanMake) {
  LimitedWorld world;
  auto ranks = world.joined({0, 0});
  expect_all(ranks, "split");
  const pid_t daemon = world.node(0).process().pid();
  set_descriptors(daemon, next_descriptor(daemon));
  for (auto& rank : ranks) rank->start("split");
  for (auto& rank : ranks) {
    const Told told = rank->finish(kSoonMs);
    EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << told.text;
    EXPECT_THAT(told.text, HasSubstr("hdtcommd (pid " + std::to_string(daemon) + ")"));
  }
  expect_asleep(daemon);
  expect_all(ranks, "sums");
  set_descriptors(daemon, RLIM_INFINITY);
  expect_all(ranks, "split");
  expect_all(ranks, "sums");
  world.expect_groups(0, 3);
}

// It is told to the process that shares; the call fails, and no other group.
TEST(DaemonLimits, MemoryThatItCannotTake) {
  LimitedWorld world;
  auto ranks = world.joined({0, 0});
  expect_all(ranks, "split");
  expect_all(ranks, "alloc 1048576");
  const pid_t daemon = world.node(0).process().pid();
  set_descriptors(daemon, next_descriptor(daemon));
  for (auto& rank : ranks) rank->start("big");
  for (auto& rank : ranks) {
    const Told told = rank->finish(kSoonMs);
    EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << told.text;
    EXPECT_THAT(told.text, HasSubstr("hdtcommd (pid " + std::to_string(daemon) + ")"));
  }
  expect_all(ranks, "sums");
}

// Other nodes and strangers connect by TCP.
TEST(DaemonLimits, ConnectionsAreRefusedByName) {
  LimitedWorld world;
  auto ranks = world.joined({0, 1});
  const pid_t daemon = world.node(0).process().pid();
  const std::string address = world.status(0)["address"];
  set_descriptors(daemon, next_descriptor(daemon));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ::inet_pton(AF_INET, address.substr(0, address.rfind(':')).c_str(), &to.sin_addr);
  for (int i = 0; i < 30; ++i) {
    const UniqueFd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{5, 0};
    ::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ASSERT_EQ(::connect(peer.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    std::string heard(1024, '\0');
    const ssize_t got = ::recv(peer.get(), heard.data(), heard.size(), 0);
    ASSERT_GT(got, 0) << std::strerror(errno);
    heard.resize(static_cast<size_t>(got));
    EXPECT_THAT(heard, AllOf(HasSubstr("process hdtcommd (pid " + std::to_string(daemon) + ")"),
                             HasSubstr("open files")));
  }
  expect_asleep(daemon);
  expect_all(ranks, "sum");
  set_descriptors(daemon, RLIM_INFINITY);
  expect_all(ranks, "split");
}

TEST(DaemonLimits, RaisesItsOwnAtTheStart) {
  TemporaryFolder folder;
  const std::string socket = folder.file("d.sock");
  ChildProcess daemon({"prlimit", "--nofile=64:200", NodeProcess::program(), "--node.socket", socket,
                       "--nics.addresses", "127.0.1.1", "--nics.port", "0"},
                      {}, folder.file("log"));
  const Deadline deadline = Deadline::after_ms(30'000);
  const std::string said = "200 open files are allowed (RLIMIT_NOFILE; the limit was 64";
  while (daemon.errors().find(said) == std::string::npos && !deadline.expired()) ::usleep(2'000);
  rlimit limit{};
  ASSERT_EQ(::prlimit(daemon.pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, 200U);
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait(deadline), 0);
  EXPECT_THAT(daemon.errors(), HasSubstr(said));
}

}  // namespace
}  // namespace hdt::testing
