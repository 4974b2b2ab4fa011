// rank_process.h: ranks as processes, told what to call, and what they answered.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "tests/integration/communicator/node_process.h"

namespace hdt::testing {

struct Answer {
  hdtResult_t result = HDT_ERR_INTERNAL;
  std::string text;
};

inline constexpr int64_t kAnswerMs = 30'000;

class RankProcess {
 public:
  RankProcess(const TemporaryFolder& folder, const std::map<std::string, std::string>& environment);
  void start(const std::string& call) { process_.say(call); }
  // The next answer. HDT_IN_PROGRESS, if there is none after `timeout_ms`.
  Answer finish(int64_t timeout_ms = kAnswerMs);
  Answer call(const std::string& line);
  ChildProcess& process() { return process_; }

 private:
  ChildProcess process_;
};

// Nodes of one test, and a group on them: ranks[i] runs on node placement[i].
class World {
 public:
  // Flags by node; the environment is that of the daemons.
  explicit World(int nodes, const std::vector<std::vector<std::string>>& flags = {},
                 const std::map<std::string, std::string>& environment = {});
  // New processes that form a new group. Every operation on it has `timeout_ms`; making it has not, as that
  // takes seconds on a busy machine. "": the default class.
  std::vector<std::unique_ptr<RankProcess>> group(const std::vector<int>& placement,
                                                  int64_t timeout_ms = kAnswerMs,
                                                  const std::string& group_class = "");
  // The same of processes that are there.
  static void join(std::vector<std::unique_ptr<RankProcess>>& ranks, int64_t timeout_ms,
                   const std::string& group_class);
  std::unique_ptr<RankProcess> rank_on(int node);
  NodeProcess& node(int number) { return *nodes_[static_cast<size_t>(number)]; }
  const TemporaryFolder& folder() const { return folder_; }
  // Returns when that local rank of the only group on that node has entered `calls` calls.
  void await_entered(int node, size_t local, uint64_t calls);
  // Returns when the only group on that node is ready: after a restart of its daemon, when all its ranks have
  // come back.
  void await_ready(int node);
  // Returns when all but `missing` ranks of the only group that is being made have joined. The node's daemon
  // is the one where they meet.
  void await_joins(int node, size_t missing);
  // SIGKILL, and waits for its end.
  void kill_daemon(int node);
  // Proves that all nodes still serve: a group over them makes an allreduce.
  void expect_serving();

 private:
  void await_group(int node, const std::function<bool(const nlohmann::json&)>& is_so,
                   const std::string& what);

  TemporaryFolder folder_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
};

}  // namespace hdt::testing
