// node_daemons.h: a hdtcommd for each emulated node, for the length of a run.
#pragma once

#include <string>
#include <vector>

#include "bench/commbench/child_process.h"
#include "bench/commbench/rank_environment.h"

namespace hdt::bench {

// Owns the daemons. The destructor ends them in order (SIGTERM), kills those that do not end, and
// removes their sockets.
class NodeDaemons {
 public:
  // Starts the daemons if options.separate_daemons asks for them, and gives `job` their sockets;
  // otherwise returns an object without daemons. Returns when all of them accept connections. kNoDaemon
  // if one has ended, kTimeout if one does not start in 30 s. Must be called before any thread is
  // started.
  static Result<NodeDaemons> start(const Options& options, Job& job);
  ~NodeDaemons();
  NodeDaemons(NodeDaemons&& other) noexcept;
  NodeDaemons& operator=(NodeDaemons&&) = delete;

 private:
  NodeDaemons() = default;
  // Forks the daemon of one node.
  Status start_one(const Options& options, const Job& job, int node);

  // A temporary folder for the sockets. Empty: no daemons were asked for.
  std::string folder_;
  std::vector<Child> daemons_;
};

}  // namespace hdt::bench
