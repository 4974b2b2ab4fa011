// node_daemons.cc: starts the daemons, waits for their sockets, and ends them in order.
#include "bench/commbench/node_daemons.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "bench/commbench/resource_use.h"

namespace hdt::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStartLimit{30};
constexpr int kLookAgainMs = 5;
constexpr int kEndLimitMs = 30000;

// Waits for up to `wait_ms` for the child's end.
bool has_ended(const Child& child, int wait_ms) {
  pollfd wait{child.pid_fd, POLLIN, 0};
  return poll(&wait, 1, wait_ms) == 1;
}

}  // namespace

NodeDaemons::NodeDaemons(NodeDaemons&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), daemons_(std::exchange(other.daemons_, {})) {}

Result<NodeDaemons> NodeDaemons::start(const Options& options, Job& job) {
  NodeDaemons all;
  if (!options.separate_daemons) return all;
  char folder[] = "/tmp/hdt-commbench-XXXXXX";
  if (mkdtemp(folder) == nullptr) return Status::from_errno("a temporary folder in /tmp", errno);
  all.folder_ = job.sockets = folder;
  for (int node = 0; node < std::max(options.nodes, 1); ++node) {
    HDT_RETURN_IF_ERROR(all.start_one(options, job, node));
  }
  const auto deadline = Clock::now() + kStartLimit;
  for (size_t node = 0; node < all.daemons_.size(); ++node) {
    // Looks every few milliseconds until the daemon accepts connections, or has ended.
    while (listener_of(job.socket(static_cast<int>(node))) == 0) {
      if (has_ended(all.daemons_[node], kLookAgainMs)) {
        return Status(Code::kNoDaemon, fmt::format("the hdtcommd of node {} has ended", node));
      }
      if (Clock::now() > deadline)
        return Status(Code::kTimeout, fmt::format("the hdtcommd of node {} does not start", node));
    }
  }
  return all;
}

// Port 0: each daemon takes any free one, so runs do not get in each other's way.
Status NodeDaemons::start_one(const Options& options, const Job& job, int node) {
  const pid_t launcher = getpid();
  std::vector<std::string> arguments{program_folder() + "/hdtcommd",
                                     "--node.name",
                                     job.node_name(node),
                                     "--node.socket",
                                     job.socket(node),
                                     "--nics.addresses",
                                     node_address(node),
                                     "--nics.port",
                                     "0",
                                     "--log.level",
                                     "warn"};
  if (!options.backend.empty()) {
    arguments.emplace_back("--class.default.backends");
    arguments.push_back(options.backend);
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return Status::from_errno("starting hdtcommd", errno);
  if (pid == 0) {
    // The daemon ends if the launcher does.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher) _exit(1);
    execv(pointers[0], pointers.data());
    std::fprintf(stderr, "hdt-commbench: --daemon: cannot run %s\n", pointers[0]);
    _exit(127);
  }
  Result<Child> child = watch(fmt::format("the hdtcommd of node {}", node), pid);
  if (!child.is_ok()) return child.status();
  daemons_.push_back(child.take());
  return Status::ok();
}

// All get SIGTERM before the first one is waited for, so that they end at the same time.
NodeDaemons::~NodeDaemons() {
  for (const Child& daemon : daemons_) kill(daemon.pid, SIGTERM);
  for (Child& daemon : daemons_) {
    // A daemon that does not end in time is killed below.
    if (has_ended(daemon, kEndLimitMs)) reap(daemon);
  }
  end_all(daemons_);
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace hdt::bench
