// host_lock_test.cc: one holder at a time, by the kernel's word, and a file that is removed safely.
#include "libclient/daemon_client/host_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

namespace hdt::client {
namespace {

class HostLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_), nullptr);
    path_ = std::string(folder_) + "/n.lock";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // In a process of its own: locks of one process do not exclude each other.
  static int in_child(const std::function<int()>& work) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work());
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  char folder_[32] = "/tmp/hdt-test-XXXXXX";
  std::string path_;
};

TEST_F(HostLockTest, OneHolderWhomOthersCanName) {
  const auto mine = HostLock::take(path_);
  ASSERT_TRUE(mine.is_ok()) << mine.status().message();
  const int wrong = in_child([&] {
    pid_t holder = 0;
    const auto other = HostLock::take(path_, &holder);
    return other.status().code() == Code::kInProgress && holder == ::getppid() ? 0 : 1;
  });
  EXPECT_EQ(wrong, 0);
}

// The child has the descriptor, and not the lock.
TEST_F(HostLockTest, AChildDoesNotHoldItsParentsLock) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t grandchild = -1;
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto mine = HostLock::take(path_);
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    (void)!::write(ready[1], &child, sizeof child);
    ::_exit(mine.is_ok() ? 0 : 1);
  }
  ASSERT_EQ(::read(ready[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  int status = 0;
  ::waitpid(holder, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(HostLock::take(path_).is_ok());
  ::kill(grandchild, SIGKILL);
}

TEST_F(HostLockTest, ItsTextIsReadWholeOrNotAtAll) {
  EXPECT_EQ(HostLock::read(path_), "");
  auto mine = HostLock::take(path_);
  ASSERT_TRUE(mine.is_ok());
  ASSERT_TRUE(mine.value().write("a = 1\n").is_ok());
  EXPECT_EQ(in_child([&] { return HostLock::read(path_) == "a = 1\n" ? 0 : 1; }), 0);
  std::filesystem::resize_file(path_, 4);
  EXPECT_EQ(in_child([&] { return HostLock::read(path_).empty() ? 0 : 1; }), 0);
}

// Whoever opened the file before it was removed has a lock on nothing, and is told so.
TEST_F(HostLockTest, AFileThatIsRemovedExcludesNobody) {
  auto mine = HostLock::take(path_);
  ASSERT_TRUE(mine.is_ok());
  mine.value().remove();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(in_child([&] { return HostLock::take(path_).is_ok() ? 0 : 1; }), 0);
}

TEST_F(HostLockTest, AFolderThatIsGoneIsMadeAgainByWhoeverAsks) {
  EXPECT_EQ(HostLock::take(std::string(folder_) + "/none/n.lock").status().code(), Code::kInProgress);
}

}  // namespace
}  // namespace hdt::client
