#include "libclient/intranode/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/faults/processes/children.h"
#include "tests/protocol/node_queues/one_node.h"

namespace hdt::client {
namespace {

using ::testing::HasSubstr;

// A node of two ranks: this process, and a child of it that offers its proof. What it has in memory is the
// same as here but for what it writes itself, and at the same addresses: nothing but the proof tells them
// apart.
class TwoProcesses : public ::testing::Test {
 protected:
  void start(const std::function<void()>& then = [] { ::pause(); }) {
    ASSERT_EQ(::pipe(ready_), 0);
    // The segment, which the child of a test needs.
    ASSERT_EQ(::madvise(&node_.segment().header(), node_.segment().layout().total, MADV_DOFORK), 0);
    child_ = hdt::testing::child([&] {
      const NodeAccess& access = node_.access(1);
      access.rank_state().pid.store(static_cast<uint32_t>(::getpid()));
      value = 2;
      const Reach reach(access);
      (void)!::write(ready_[1], "r", 1);
      then();
    });
    char answer = 0;
    ASSERT_EQ(::read(ready_[0], &answer, 1), 1);
  }
  void TearDown() override {
    if (child_ > 0) hdt::testing::end(child_);
  }
  // As the child has told.
  Process peer() { return process_of(node_.access(1).rank_state()); }
  static uint64_t address() { return reinterpret_cast<uint64_t>(&value); }

  static inline uint64_t value = 1;
  testing::OneNode node_{2};
  int ready_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST_F(TwoProcesses, WhoHasTheProofIsReadAndWritten) {
  start([this] {
    while (*const_cast<volatile uint64_t*>(&value) != 3) ::usleep(1'000);
    (void)!::write(ready_[1], "w", 1);
    ::pause();
  });
  uint64_t read = 0;
  ASSERT_TRUE(read_proven(peer(), address(), &read, sizeof read).is_ok());
  EXPECT_EQ(read, 2U);
  read = 3;
  ASSERT_TRUE(write_proven(peer(), address(), &read, sizeof read).is_ok());
  char answer = 0;
  EXPECT_EQ(::read(ready_[0], &answer, 1), 1);
}

// As in another PID namespace, or when the number has been given anew.
TEST_F(TwoProcesses, AnotherProcessUnderTheSameNumberIsNot) {
  start();
  Process stranger = peer();
  stranger.pid = ::getpid();
  uint64_t read = 0;
  const Status refused = read_proven(stranger, address(), &read, sizeof read);
  EXPECT_EQ(refused.code(), Code::kSystem);
  read = 3;
  EXPECT_EQ(write_proven(stranger, address(), &read, sizeof read).code(), Code::kSystem);
  EXPECT_EQ(value, 1U);
}

// It has the same at the address, and is another number away.
TEST_F(TwoProcesses, AChildOfTheRankIsNotTheRank) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  start([&] {
    const pid_t copy = hdt::testing::child([] { ::pause(); });
    (void)!::write(told[1], &copy, sizeof copy);
    ::pause();
  });
  Process copy = peer();
  ASSERT_EQ(::read(told[0], &copy.pid, sizeof copy.pid), static_cast<ssize_t>(sizeof copy.pid));
  uint64_t read = 0;
  const Status refused = read_proven(copy, address(), &read, sizeof read);
  EXPECT_EQ(refused.code(), Code::kSystem);
  EXPECT_THAT(refused.message(), HasSubstr("not the rank's"));
  read = 3;
  EXPECT_FALSE(write_proven(copy, address(), &read, sizeof read).is_ok());
  ::kill(copy.pid, SIGKILL);
}

// The same number, another program.
TEST_F(TwoProcesses, ARankThatHasExecedIsNotTheRank) {
  start([this] {
    ::dup2(ready_[1], STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", "echo; exec sleep 60", nullptr);
  });
  char answer = 0;
  ASSERT_EQ(::read(ready_[0], &answer, 1), 1);
  uint64_t read = 3;
  EXPECT_FALSE(read_proven(peer(), address(), &read, sizeof read).is_ok());
  EXPECT_FALSE(write_proven(peer(), address(), &read, sizeof read).is_ok());
}

TEST_F(TwoProcesses, TheProofGoesWithTheGroup) {
  start([this] {
    { const Reach of_another_group(node_.access(1)); }
    (void)!::write(ready_[1], "g", 1);
    ::pause();
  });
  char answer = 0;
  ASSERT_EQ(::read(ready_[0], &answer, 1), 1);
  uint64_t read = 3;
  EXPECT_FALSE(read_proven(peer(), address(), &read, sizeof read).is_ok());
}

TEST_F(TwoProcesses, ANumberOfAnotherNamespaceSaysNothing) {
  start();
  const NodeAccess& mine = node_.access(0);
  Reach reach(mine);
  mine.rank_state().pid.store(static_cast<uint32_t>(::getpid()));
  EXPECT_FALSE(reach.ended(1));
  hdt::testing::end(child_);
  child_ = -1;
  EXPECT_TRUE(reach.ended(1));
  node_.access(1).rank_state().pid_namespace.store(pid_namespace() + 1);
  EXPECT_FALSE(reach.ended(1));
  // Nor is such a process tried.
  node_.access(1).rank_state().reach.store(2);
  EXPECT_EQ(reach.ask(), Reach::Answer::kNo);
}

}  // namespace
}  // namespace hdt::client
