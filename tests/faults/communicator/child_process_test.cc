// The processes of a test that is killed are ended, or those of one run would be in the way of the next.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "tests/integration/communicator/child_process.h"

namespace hdt::testing {
namespace {

constexpr int64_t kLimitMs = 30'000;

TEST(ChildProcess, DoesNotOutliveATestThatIsKilled) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd told(ends[0]), tells(ends[1]);
  const pid_t killed = ::fork();
  if (killed == 0) {
    // Reads nothing, so that the end of the pipe to it does not end it.
    ChildProcess child({"/bin/sh", "-c", "echo runs; exec sleep 100"}, {}, "/dev/null");
    const pid_t pid = child.read_line(Deadline::after_ms(kLimitMs)) == "runs" ? child.pid() : -1;
    if (::write(tells.get(), &pid, sizeof pid) == sizeof pid) ::pause();
    ::_exit(1);
  }
  pid_t child = -1;
  ASSERT_EQ(::read(told.get(), &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  const UniqueFd watch(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ASSERT_TRUE(watch.valid());
  ::kill(killed, SIGKILL);
  ASSERT_EQ(::waitpid(killed, nullptr, 0), killed);
  pollfd ended{watch.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, kLimitMs), 1) << "process " << child << " goes on";
}

}  // namespace
}  // namespace hdt::testing
