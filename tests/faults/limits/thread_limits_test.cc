// thread_limits_test.cc: a user's limit of processes leaves no thread. Every place that starts one says so as
// a limit of the system, and leaves nothing half made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/faults/limits/limited_rank.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kUser = "user 14322";

// The limit binds no privileged process.
void become_a_user(LimitedRank& rank) {
  if (::geteuid() != 0) return;
  ASSERT_EQ(rank.call(kUser).result, HDT_SUCCESS);
}

void expect_no_thread(const Told& told) {
  EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << told.text;
  EXPECT_THAT(told.text, AllOf(HasSubstr("cannot start a thread"),
                               HasSubstr("the limit of processes (RLIMIT_NPROC, ulimit -u) of user")));
}

TEST(ThreadLimits, NoThreadForTheSession) {
  LimitedWorld world;
  auto rank = world.alone(0);
  become_a_user(*rank);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(rank->call("limit nproc 1").result, HDT_SUCCESS);
    expect_no_thread(rank->call("init"));
    ASSERT_EQ(rank->call("lift").result, HDT_SUCCESS);
  }
  const Told told = rank->call("init");
  EXPECT_EQ(told.result, HDT_SUCCESS) << told.text;
  EXPECT_EQ(rank->call("sum").text, "1");
  EXPECT_EQ(world.status(0)["sessions"].size(), 2U);  // the rank and hdtctl
}

TEST(ThreadLimits, NoThreadForAnEmbeddedDaemon) {
  TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 01777);
  ::setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  LimitedRank rank(folder, {{"HDT_NODE_NAME", "limited"}, {"HDT_NICS_ADDRESSES", "127.0.1.1"}});
  become_a_user(rank);
  ASSERT_EQ(rank.call("limit nproc 1").result, HDT_SUCCESS);
  expect_no_thread(rank.call("init"));
  EXPECT_EQ(rank.call("threads").text, "1");
  ASSERT_EQ(rank.call("lift").result, HDT_SUCCESS);
  const Told told = rank.call("init");
  EXPECT_EQ(told.result, HDT_SUCCESS) << told.text;
  EXPECT_EQ(rank.call("sum").text, "1");
}

// The others wait for the operation that this rank cannot begin: they are told, too, and other groups go on.
TEST(ThreadLimits, NoThreadForAnAsynchronousOperation) {
  LimitedWorld world;
  auto ranks = world.joined({0, 0, 1});
  expect_all(ranks, "split");
  become_a_user(*ranks[0]);
  ASSERT_EQ(ranks[0]->call("limit nproc 1").result, HDT_SUCCESS);
  for (auto& rank : ranks) rank->start("async");
  for (auto& rank : ranks) {
    const Told told = rank->finish(kSoonMs);
    expect_no_thread(told);
    EXPECT_THAT(told.text, HasSubstr("rank 0: process limit_program (pid "));
  }
  expect_all(ranks, "sums");
}

TEST(ThreadLimits, NoThreadForADeterministicGroup) {
  LimitedWorld world;
  auto ranks = world.joined({0, 1});
  become_a_user(*ranks[0]);
  ASSERT_EQ(ranks[0]->call("limit nproc 1").result, HDT_SUCCESS);
  for (auto& rank : ranks) rank->start("deterministic");
  expect_no_thread(ranks[0]->finish(kSoonMs));
  const Told other = ranks[1]->finish(kSoonMs);
  if (other.result != HDT_SUCCESS) expect_no_thread(other);
  expect_all(ranks, "sum");
  ASSERT_EQ(ranks[0]->call("lift").result, HDT_SUCCESS);
  expect_all(ranks, "deterministic");
}

TEST(ThreadLimits, HdtcommdDoesNotStart) {
  if (::geteuid() != 0) GTEST_SKIP() << "becomes another user: for root";
  TemporaryFolder folder;
  const std::string socket = "/tmp/hdt-limits-" + std::to_string(::getpid()) + ".sock";
  const ProgramRun run =
      run_program({"setpriv", "--reuid=14322", "--regid=14322", "--clear-groups", "prlimit", "--nproc=1",
                   NodeProcess::program(), "--node.socket", socket, "--nics.addresses", "127.0.1.1",
                   "--nics.port", "0", "--log.level", "error"});
  EXPECT_EQ(run.status, 1) << run.errors;
  EXPECT_THAT(run.errors, AllOf(HasSubstr("cannot start a thread"), HasSubstr("of user 14322 is 1")));
  EXPECT_NE(::access(socket.c_str(), F_OK), 0) << "the socket is left";
}

}  // namespace
}  // namespace hdt::testing
