// rank_environment.h: what makes a process a rank of a job of emulated nodes on this machine.
#pragma once

#include <sys/types.h>

#include <string>

#include "bench/commbench/options.h"

namespace hdt::bench {

std::string node_address(int node);

// A TCP port that is free now on the first node's address. Another process may take it before rank 0's daemon
// does; joining then fails with its reason and the run can be started again.
Result<int> find_free_port();

int rank_count(const Options& options);

// For this process: rank `rank` of the job that `launcher` starts, which meets at `port`.
void set_rank_environment(const Options& options, int rank, int port, pid_t launcher);

}  // namespace hdt::bench
