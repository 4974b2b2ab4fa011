// diagnosis.h: what the control thread does for diagnosis. It collects the facts of this node and of the
// nodes that it shares groups with or makes groups with, and answers hdtctl why and trace, other daemons,
// and ranks whose deadline has passed.
//
// The path of the facts: engines copy them (EngineReports); the control thread completes them and removes
// what the viewer may not see (local_facts()); Inquiries collects those of other nodes (all_facts());
// judge() makes verdicts of all of them.
//
// Owner: ControlParts; the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>

#include "daemon/control/control_parts.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

class Diagnosis {
 public:
  explicit Diagnosis(ControlParts& daemon) : daemon_(daemon) {}

  // Keeps what an engine knew of a group that has ended, for hdtctl why and trace.
  void remember(GroupFacts ended);
  // A question of another daemon.
  void on_inquiry(ChannelId channel, const Inquiry& inquiry);
  // Answers `hdtctl why`; `group` is a public name, its first 8 digits, a class, or "" for all.
  void answer_why(uint64_t session, const std::string& group);
  // Answers `hdtctl trace`.
  void answer_trace(uint64_t session);
  // A rank's deadline has passed: fails its group with the verdict.
  void on_deadline(uint64_t session, const Seat& seat, const ipc::GroupNotice& notice);

 private:
  // Calls `then` with the facts of this node that the viewer may see. `all_operations`: all recorded
  // operations of each rank, else the recent ones.
  template <typename Then>
  void local_facts(bool all_operations, const Viewer& viewer, Then then);
  // Calls `then` with the facts of this node, first, and of all nodes with which it shares or shared groups.
  // A node that has not answered within `budget_ms` is there as one that is silent.
  template <typename Then>
  void all_facts(bool all_operations, const Viewer& viewer, int64_t budget_ms, Then then);

  ControlParts& daemon_;
  // groups that have ended, the latest last
  std::deque<GroupFacts> past_;
  // the number of their ranks of this node
  size_t past_ranks_ = 0;
  // ids of groups with a rank whose deadline has passed, while facts are collected
  std::set<uint64_t> in_diagnosis_;
  // the first of two moments from which the recorder's ticks are translated into now_ns()
  const TickMoment made_ = TickMoment::now();
};

}  // namespace hdt::daemon
