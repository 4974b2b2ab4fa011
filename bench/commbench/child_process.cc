// child_process.cc: waits by polling pid file descriptors. Unlike SIGCHLD or process ids, they cannot be
// confused with another process.
#include "bench/commbench/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace hdt::bench {
namespace {

using Clock = std::chrono::steady_clock;

// When the first child has ended, another one may be in an operation that ends by its deadline, and then
// needs a little time for leaving.
constexpr std::chrono::seconds kLeaveTime{10};

}  // namespace

Result<Child> watch(std::string name, pid_t pid) {
  // By number: the C library has no function for it everywhere.
  const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  // The process cannot be reaped by anyone else in between, so the descriptor is that of this process.
  if (pid_fd >= 0) return Child{std::move(name), pid, pid_fd};
  const Status status = Status::from_errno("watching " + name, errno);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return status;
}

int reap(Child& child) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  close(child.pid_fd);
  child.pid_fd = -1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "hdt-commbench: %s (pid %d) was ended by signal %d (%s)\n", child.name.c_str(),
               child.pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
  return 1;
}

void end_all(std::vector<Child>& children) {
  for (Child& child : children) {
    if (child.pid_fd < 0) continue;
    kill(child.pid, SIGKILL);
    reap(child);
  }
}

int wait_for_all(std::vector<Child>& children, const Options& options) {
  int code = 0;
  size_t running = children.size();
  // The end of a child brings the deadline closer, and nothing moves it away.
  auto deadline = Clock::now() + std::chrono::seconds(options.time_limit_s);
  std::vector<pollfd> waits(children.size());
  while (running > 0) {
    for (size_t i = 0; i < children.size(); ++i) waits[i] = {children[i].pid_fd, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    // poll() ignores negative descriptors, those of children that were reaped. One minute at most, so
    // that the conversion to int cannot overflow.
    if (poll(waits.data(), waits.size(), static_cast<int>(std::min<int64_t>(left, 60000))) < 0 &&
        errno != EINTR)
      break;
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i].pid_fd < 0 || (waits[i].revents & POLLIN) == 0) continue;
      code = std::max(code, reap(children[i]));
      --running;
      deadline = std::min(deadline, Clock::now() + std::chrono::seconds(options.timeout_s) + kLeaveTime);
    }
  }
  // The children that are left are late.
  if (running == 0) return code;
  for (size_t i = 0; i < children.size(); ++i) {
    if (children[i].pid_fd < 0) continue;
    std::fprintf(stderr, "hdt-commbench: %s (pid %d) has not ended by its deadline: killing it\n",
                 children[i].name.c_str(), children[i].pid);
    kill(children[i].pid, SIGKILL);
    reap(children[i]);
  }
  return std::max(code, 1);
}

}  // namespace hdt::bench
