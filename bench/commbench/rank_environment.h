// rank_environment.h: what makes a process a rank of a job of emulated nodes on this machine.
#pragma once

#include <sys/types.h>

#include <string>

#include "bench/commbench/options.h"

namespace hdt::bench {

std::string node_address(int node);

// A TCP port that is free now where ranks meet. The daemons of the run do not take it; another run may before
// rank 0's daemon does: joining then fails with its reason and the run can be started again.
Result<int> find_free_port();

int rank_count(const Options& options);

// What the ranks of a job have in common. As text it fits into an environment variable.
struct Job {
  int port = 0;         // where they meet
  pid_t launcher = 0;   // makes names of nodes no other run has
  std::string sockets;  // folder of the nodes' daemons' sockets; empty: daemons are embedded

  std::string to_text() const;
  static Result<Job> parse(const std::string& text);
  std::string node_name(int node) const;
  std::string socket(int node) const;
};

// For this process, as rank `rank` of the job.
void set_rank_environment(const Options& options, const Job& job, int rank);

// The folder of the running program.
std::string program_folder();

}  // namespace hdt::bench
