// local_launch.cc: forking the ranks, waiting for them with a deadline, ending the rest by process id.
//
// Each node has a name that no other run has, so it neither joins the machine's daemon nor another run's, and
// an embedded daemon of its own on 127.0.1.<node + 1>.
#include "bench/commbench/local_launch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace hdt::bench {
namespace {

using Clock = std::chrono::steady_clock;

// After the first rank has ended the others need at most one operation's deadline and a little for leaving.
constexpr std::chrono::seconds kLeaveTime{10};

struct Child {
  pid_t pid = -1;
  int pid_fd = -1;  // readable when the process has ended; -1 when that has been seen
};

std::string node_address(int node) { return fmt::format("127.0.1.{}", node + 1); }

// A TCP port that is free now on the first node's address. Another process may take it before rank 0's daemon
// does; joining then fails with its reason and the run can be started again.
Result<int> find_free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Status::from_errno("socket", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, node_address(0).c_str(), &address.sin_addr);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Status status;
  if (bind(fd, generic, length) != 0 || getsockname(fd, generic, &length) != 0) {
    status = Status::from_errno("finding a free port on " + node_address(0), errno);
  }
  close(fd);
  if (!status.is_ok()) return status;
  return static_cast<int>(ntohs(address.sin_port));
}

void set_rank_environment(const Options& options, int rank, int port, pid_t launcher) {
  const int per_node = std::max(options.local, 1);
  const int node = rank / per_node;
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("HDT_RANK", std::to_string(rank));
  set("HDT_SIZE", std::to_string(per_node * std::max(options.nodes, 1)));
  set("HDT_RENDEZVOUS", fmt::format("{}:{}", node_address(0), port));
  set("HDT_NODE_NAME", fmt::format("bench-{}-{}", launcher, node));
  set("HDT_NICS_ADDRESSES", node_address(node));
  unsetenv("HDT_SOCKET");
}

Result<Child> start_rank(const Options& options, int rank, int port, const std::function<int()>& rank_main) {
  const pid_t launcher = getpid();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return Status::from_errno(fmt::format("starting rank {}", rank), errno);
  if (pid == 0) {
    // A rank does not outlive the launcher, however that ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    set_rank_environment(options, rank, port, launcher);
    const int code = rank_main();
    std::fflush(nullptr);
    std::exit(code);
  }
  const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pid_fd < 0) {
    const Status status = Status::from_errno(fmt::format("watching rank {}", rank), errno);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return status;
  }
  return Child{pid, pid_fd};
}

// Takes the ended child's exit code; says what happened if it was a signal.
int reap(Child& child, size_t rank) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  close(child.pid_fd);
  child.pid_fd = -1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "hdt-commbench: rank %zu (pid %d) was ended by signal %d (%s)\n", rank, child.pid,
               WTERMSIG(status), strsignal(WTERMSIG(status)));
  return 1;
}

int wait_for_ranks(std::vector<Child>& children, const Options& options) {
  int code = 0;
  size_t running = children.size();
  auto deadline = Clock::now() + std::chrono::seconds(options.time_limit_s);
  std::vector<pollfd> waits(children.size());
  while (running > 0) {
    for (size_t i = 0; i < children.size(); ++i) waits[i] = {children[i].pid_fd, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    if (poll(waits.data(), waits.size(), static_cast<int>(std::min<int64_t>(left, 60000))) < 0 &&
        errno != EINTR)
      break;
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i].pid_fd < 0 || (waits[i].revents & POLLIN) == 0) continue;
      code = std::max(code, reap(children[i], i));
      --running;
      deadline = std::min(deadline, Clock::now() + std::chrono::seconds(options.timeout_s) + kLeaveTime);
    }
  }
  if (running == 0) return code;
  for (size_t i = 0; i < children.size(); ++i) {
    if (children[i].pid_fd < 0) continue;
    std::fprintf(stderr, "hdt-commbench: rank %zu (pid %d) has not ended by its deadline: killing it\n", i,
                 children[i].pid);
    kill(children[i].pid, SIGKILL);
    reap(children[i], i);
  }
  return std::max(code, 1);
}

}  // namespace

int run_local_ranks(const Options& options, const std::function<int()>& rank_main) {
  const Result<int> port = find_free_port();
  if (!port.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: %s\n", port.status().to_string().c_str());
    return 1;
  }
  std::vector<Child> children;
  const int ranks = std::max(options.local, 1) * std::max(options.nodes, 1);
  for (int rank = 0; rank < ranks; ++rank) {
    const Result<Child> child = start_rank(options, rank, port.value(), rank_main);
    if (!child.is_ok()) {
      std::fprintf(stderr, "hdt-commbench: %s\n", child.status().to_string().c_str());
      for (size_t i = 0; i < children.size(); ++i) {
        kill(children[i].pid, SIGKILL);
        reap(children[i], i);
      }
      return 1;
    }
    children.push_back(child.value());
  }
  return wait_for_ranks(children, options);
}

}  // namespace hdt::bench
