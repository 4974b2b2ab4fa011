// facts.h: what a node knows of its groups, ranks and rails, for diagnosis. Plain values: engines fill
// them in (EngineReports), the control thread completes them, sends them to other daemons as JSON, and
// hands those of all nodes to judge() (verdict.h). Times are now_ns() of the node that reports them;
// NodeFacts::offset_ns relates its clock to ours.
//
// Facts of another daemon are foreign: facts_of() checks types and limits, but any text or number in them
// may be a lie.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/protocol/group_name.h"
#include "daemon/protocol/making_facts.h"
#include "ipc/recorder.h"

namespace hdt::daemon {

// A rank of the reporting node in one group.
struct RankFacts {
  uint32_t rank = 0;
  // as the daemon sees the process; 0: it has no number here, or has no seat yet
  uint32_t pid = 0;
  // The letter of its state in /proc: "R" runs, "S" sleeps, "T" is stopped. "?": not known. "": there is
  // no such process. Set by complete().
  std::string process;
  // it has departed: it makes no more calls
  bool departed = false;
  // how it failed, as the rest of a sentence: "(pid 7) ended without leaving the group"; "": it has not
  std::string end;
  // the number of collective calls that it has entered
  uint64_t calls = 0;
  // oldest first; set by complete()
  std::vector<ipc::Operation> operations;
  // what complete() reads `operations` from; not sent to others
  std::vector<ipc::RecordCopy> records;
};

// Another node, as the reporting node's part of a group sees it.
struct PeerFacts {
  std::string node;
  // the group has a link to that node
  bool linked = false;
  // writes handed to the link since the group was made
  uint64_t writes = 0;
  // frames that came from there
  uint64_t arrivals = 0;
  // ns since the latest of them came; -1: none has
  int64_t quiet_ns = -1;
  // writes that the peer has not acknowledged (a number, not bytes)
  uint64_t in_flight = 0;
};

// A node of a group and the ranks on it.
struct GroupNodeFacts {
  std::string name;
  // where its daemon accepts control connections
  std::string control;
  std::vector<uint32_t> ranks;
};

// The reporting node's part of a group.
struct GroupFacts {
  // the public name of the group (group_name.h), the same on all nodes
  std::string id;
  // for people: "group 1a2b3c4d (class dp)"
  std::string name;
  std::string group_class;
  // the users whose processes are its ranks on this node, or were
  std::vector<uint32_t> users;
  // the daemons of its nodes; used for access control (viewer.h), not sent to others
  std::vector<NodeId> members;
  // all its ranks of this node have departed or failed
  bool ended = false;
  // the Code of its failure; 0: it has not failed
  int code = 0;
  // the rank that the failure names; -1: none
  int failed_rank = -1;
  // the text of the failure
  std::string failure;
  // all nodes of the group
  std::vector<GroupNodeFacts> nodes;
  // the ranks of the reporting node
  std::vector<RankFacts> local;
  // all other nodes
  std::vector<PeerFacts> peers;
};

// A rail of a link between the reporting node and another one.
struct RailFacts {
  // the node at the other end
  std::string node;
  std::string backend, nic, local, remote;
  // "up", "down" or "connecting"
  std::string state;
  std::string last_error;
  // how often its connection was lost
  uint64_t losses = 0;
  // what it carries, as measured lately; 0: not measured yet
  uint64_t bytes_per_s = 0;
  // bytes that the peer has not acknowledged
  uint64_t in_flight = 0;
  // the NIC's nominal speed in Mbit/s; 0: not known
  uint64_t megabits = 0;
};

// All that one node reports.
struct NodeFacts {
  std::string name;
  // where its daemon accepts control connections
  std::string control;
  // False: only `name`, `control` and `silence` mean anything. Set by who has asked.
  bool answered = true;
  // why it did not answer
  std::string silence;
  // its clock minus ours, in ns. Set by who has asked (Inquiries); 0 for the own node.
  int64_t offset_ns = 0;
  // its clock when it collected the facts
  int64_t now_ns = 0;
  std::vector<GroupFacts> groups;
  std::vector<RailFacts> rails;
  std::vector<MakingFacts> making;
  // how many groups were taken out because the viewer may not see them (viewer.h)
  uint64_t hidden = 0;
};

// The facts as JSON. `records` and both `members` are left out.
nlohmann::json to_text(const NodeFacts& facts);
// Facts from the JSON of another daemon. kInvalidArgument: the text is no JSON, a field is missing or of
// another type, or a number is beyond what can be; the message says which.
Result<NodeFacts> facts_of(const std::string& json);

// Fills in RankFacts::operations from the records, and RankFacts::process. `scale` translates the
// recorder's ticks into now_ns(). Reads /proc once for each rank that has not departed, so it belongs on
// the control thread.
void complete(GroupFacts& group, const TickScale& scale);

// Drops all operations of each rank but those under way (64 at most) and the latest four that have ended,
// so that an answer stays short.
void keep_recent(NodeFacts& facts);

// The letter of the process's state in /proc/PID/stat. "" if there is no such process; "?" if /proc does
// not show this PID namespace.
std::string process_state(uint32_t pid);

}  // namespace hdt::daemon
