// node_daemons.h: a hdtcommd for each emulated node, for the time of a run.
#pragma once

#include <string>
#include <vector>

#include "bench/commbench/child_process.h"
#include "bench/commbench/rank_environment.h"

namespace hdt::bench {

class NodeDaemons {
 public:
  // Starts what options.separate_daemons asks for (nothing: an object without daemons) and gives `job` their
  // sockets. Returns when all of them can be reached. Before any thread is started.
  static Result<NodeDaemons> start(const Options& options, Job& job);
  ~NodeDaemons();
  NodeDaemons(NodeDaemons&& other) noexcept;
  NodeDaemons& operator=(NodeDaemons&&) = delete;

 private:
  NodeDaemons() = default;
  Status start_one(const Options& options, const Job& job, int node);

  std::string folder_;  // empty: none were asked for
  std::vector<Child> daemons_;
};

}  // namespace hdt::bench
