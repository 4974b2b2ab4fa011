// facts.h: what a node knows of its groups, ranks and rails, for diagnosis: plain values, taken on the
// engines, told to other daemons as JSON, judged by verdict.h. Times are now_ns()'s of the node that tells
// them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/protocol/group_name.h"
#include "daemon/protocol/making_facts.h"
#include "ipc/recorder.h"

namespace hdt::daemon {

struct RankFacts {
  uint32_t rank = 0;
  uint32_t pid = 0;
  // Its state in /proc: "R" runs, "S" sleeps, "T" is stopped; "?": not known; "": there is no such process.
  std::string process;
  bool left = false;                           // it makes no more calls
  std::string end;                             // how it was lost: "(pid 7) ended without leaving the group"
  uint64_t calls = 0;                          // entered
  std::vector<session::Operation> operations;  // oldest first
  std::vector<session::RecordCopy> records;    // what operations are read from; not told to others
};

// Another node, as a group sees it.
struct PeerFacts {
  std::string node;
  bool linked = false;
  uint64_t writes = 0;    // chunks handed to the link
  uint64_t arrivals = 0;  // chunks that came from there
  int64_t quiet_ns = -1;  // since the last one came; -1: none has
  uint64_t in_flight = 0;
};

struct GroupNodeFacts {
  std::string name;
  std::string control;  // where its daemon listens
  std::vector<uint32_t> ranks;
};

struct GroupFacts {
  std::string id;    // the same on all nodes
  std::string name;  // "group 1a2b3c4d (class dp)"
  std::string group_class;
  std::vector<uint32_t> users;  // whose processes are its ranks on this node, or were
  std::vector<NodeId> members;  // the nodes' daemons; not told to others
  bool ended = false;           // all its ranks of this node have left
  int code = 0;                 // of the failure, 0: none
  int failed_rank = -1;
  std::string failure;
  std::vector<GroupNodeFacts> nodes;
  std::vector<RankFacts> local;
  std::vector<PeerFacts> peers;
};

struct RailFacts {
  std::string node;  // at the other end
  std::string backend, nic, local, remote;
  std::string state;  // "up", "down", "connecting"
  std::string last_error;
  uint64_t losses = 0;
  uint64_t bytes_per_s = 0;  // measured lately; 0: not yet
  uint64_t in_flight = 0;    // bytes
  uint64_t megabits = 0;     // nominal speed of the NIC; 0: not known
};

struct NodeFacts {
  std::string name;
  std::string control;  // where its daemon listens
  bool answered = true;
  std::string silence;    // why it did not
  int64_t offset_ns = 0;  // its clock less ours
  int64_t now_ns = 0;
  std::vector<GroupFacts> groups;
  std::vector<RailFacts> rails;
  std::vector<MakingFacts> making;
  uint64_t hidden = 0;  // groups that who asks does not see (viewer.h)
};

nlohmann::json to_text(const NodeFacts& facts);
// Of another daemon: kInvalidArgument says what is wrong with it.
Result<NodeFacts> facts_of(const std::string& json);

// Turns records into operations; for those that are under way, looks at their processes.
void complete(GroupFacts& group, const TickScale& scale);

// Leaves of each rank's operations those that are under way and the last ones that ended.
void keep_recent(NodeFacts& facts);

// The letter in /proc/PID/stat; "" if there is no such process, "?" if /proc is not of this PID namespace.
std::string process_state(uint32_t pid);

}  // namespace hdt::daemon
