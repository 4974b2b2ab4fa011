// local_launch.cc: forks the ranks, after the nodes' daemons if these are to be separate, and waits for
// all of them.
#include "bench/commbench/local_launch.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/commbench/child_process.h"
#include "bench/commbench/node_daemons.h"
#include "bench/commbench/rank_environment.h"

namespace hdt::bench {
namespace {

// Forks one rank.
Result<Child> start_rank(const Options& options, const Job& job, int rank,
                         const std::function<int()>& rank_main) {
  const pid_t launcher = getpid();
  // Buffered output would be printed by both processes.
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return Status::from_errno(fmt::format("starting rank {}", rank), errno);
  if (pid == 0) {
    // A rank does not outlive the launcher, however that ends. The launcher may have ended before the
    // call; then the parent is another process.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    set_rank_environment(options, job, rank);
    const int code = rank_main();
    std::fflush(nullptr);
    std::exit(code);
  }
  return watch(fmt::format("rank {}", rank), pid);
}

}  // namespace

int run_local_ranks(const Options& options, const std::function<int()>& rank_main) {
  // 1. Where the ranks meet; 2. the nodes' daemons; 3. the ranks; 4. wait for them.
  const Result<int> port = find_free_port();
  if (!port.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: %s\n", port.status().to_string().c_str());
    return 1;
  }
  Job job{port.value(), getpid(), ""};
  const Result<NodeDaemons> daemons = NodeDaemons::start(options, job);
  if (!daemons.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: %s\n", daemons.status().message().c_str());
    return 1;
  }
  std::vector<Child> children;
  for (int rank = 0; rank < rank_count(options); ++rank) {
    const Result<Child> child = start_rank(options, job, rank, rank_main);
    if (!child.is_ok()) {
      std::fprintf(stderr, "hdt-commbench: %s\n", child.status().to_string().c_str());
      // Without one rank the others would wait for it until their deadline.
      end_all(children);
      return 1;
    }
    children.push_back(child.value());
  }
  return wait_for_all(children, options);
}

}  // namespace hdt::bench
