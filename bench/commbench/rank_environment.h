// rank_environment.h: what makes a process a rank of a job of emulated nodes on this machine:
// environment variables, an address, and cores.
#pragma once

#include <sys/types.h>

#include <string>

#include "bench/commbench/options.h"

namespace hdt::bench {

// The loopback address of an emulated node.
std::string node_address(int node);

// A TCP port that is free at the moment, for the ranks' rendezvous. The daemons of this run do not take
// it. Another run may take it before rank 0's daemon does; joining then fails and says so, and the run
// can be started again.
Result<int> find_free_port();

// Ranks of all nodes that the options ask for.
int rank_count(const Options& options);

// All ranks of a job have this in common. to_text() makes it fit into an environment variable.
struct Job {
  // Port of the rendezvous.
  int port = 0;
  // Makes the names of the nodes unique on this machine.
  pid_t launcher = 0;
  // The folder of the sockets of the nodes' daemons. Empty: daemons are embedded.
  std::string sockets;

  // The two are the reverse of each other. kInvalidArgument for a text that to_text() has not made.
  std::string to_text() const;
  static Result<Job> parse(const std::string& text);
  // The name and the daemon's socket of a node of this job.
  std::string node_name(int node) const;
  std::string socket(int node) const;
};

// Makes this process rank `rank` of the job: sets its environment, and keeps it to the cores of its
// node. Call it before libhdt is used and before threads are started.
void set_rank_environment(const Options& options, const Job& job, int rank);

// The folder that holds the running program.
std::string program_folder();

}  // namespace hdt::bench
