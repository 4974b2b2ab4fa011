// limited_rank.h: ranks as processes that set limits for themselves (limit_program.cc), and what a daemon
// holds.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "tests/integration/communicator/node_process.h"

namespace hdt::testing {

struct Told {
  hdtResult_t result = HDT_ERR_INTERNAL;
  std::string text;
};

// "Soon": the promise for what is known to be impossible.
inline constexpr int64_t kSoonMs = 5'000;

class LimitedRank {
 public:
  LimitedRank(const TemporaryFolder& folder, const std::map<std::string, std::string>& environment);
  void start(const std::string& call) { process_.say(call); }
  // HDT_IN_PROGRESS if there is no answer after `timeout_ms`.
  Told finish(int64_t timeout_ms = 30'000);
  Told call(const std::string& line);
  ChildProcess& process() { return process_; }

 private:
  ChildProcess process_;
};

// Two daemons, and groups whose ranks are given by node.
class LimitedWorld {
 public:
  LimitedWorld();
  using Ranks = std::vector<std::unique_ptr<LimitedRank>>;
  // A job whose ranks have not called anything yet. "init" makes its group.
  Ranks job(const std::vector<int>& placement);
  // The same, with its group.
  Ranks joined(const std::vector<int>& placement);
  std::unique_ptr<LimitedRank> alone(int node);
  NodeProcess& node(int number) { return *nodes_[static_cast<size_t>(number)]; }
  nlohmann::json status(int node);
  // Waits until the node has that many groups.
  void expect_groups(int node, size_t groups);
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
  int jobs_ = 0;
};

// All make the call at once, and all succeed.
void expect_all(LimitedWorld::Ranks& ranks, const std::string& call);

size_t open_descriptors(pid_t pid);
// The number that would be given to the n-th descriptor that the process opens, from 0: as its limit, it
// leaves room for n.
rlim_t next_descriptor(pid_t pid, size_t n = 0);
// How often its threads went to sleep of themselves, and its processor time in ms.
int64_t times_awake(pid_t pid);
int64_t processor_ms(pid_t pid);

}  // namespace hdt::testing
