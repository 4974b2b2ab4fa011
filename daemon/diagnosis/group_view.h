// group_view.h: a group as all its nodes together have reported it, which is what verdict.h judges. Views
// point into the facts that they are made from, so these must live longer. Pure functions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/saturate.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

// A rank of the group, with what its own node has reported of it.
struct MemberView {
  // the name of its node, as any node has reported it
  std::string node;
  // its own node; null: nothing is known of the rank
  const NodeFacts* told_by = nullptr;
  // what that node knows of it; null together with told_by
  const RankFacts* facts = nullptr;

  // The number of collective calls that it has made, including calls that wait for their turn to be
  // published.
  uint64_t calls() const;
  // its process is stopped by a signal or a debugger
  bool stopped() const { return facts != nullptr && (facts->process == "T" || facts->process == "t"); }
  // its process has ended, and it had not departed
  bool dead() const { return facts != nullptr && !facts->departed && facts->process.empty(); }
  // The oldest collective call under way; null: none.
  const ipc::Operation* current() const;
  // The operation that ended last; null: none is recorded.
  const ipc::Operation* last() const;
};

struct GroupView {
  // the group's facts from the first node that has reported it, or from one that knows its failure
  const GroupFacts* facts = nullptr;
  // by rank; all ranks that any node has named
  std::map<uint32_t, MemberView> members;
  // its nodes whose daemons do not answer
  std::vector<const NodeFacts*> silent;

  // A time of the member's node, translated to the asking node's clock. The member must be known
  // (told_by).
  static int64_t time_of(const MemberView& member, int64_t ns) {
    return saturating_sub(ns, member.told_by->offset_ns);
  }
};

// The groups in these facts, by public name. A failure that only some nodes know counts for the group.
std::map<std::string, GroupView> views_of(const std::vector<NodeFacts>& facts);

// Messages of rank `me` under way for which the other rank has not made the counterpart: (operation, the
// other rank). Ranks of which nothing is known are left out.
std::vector<std::pair<const ipc::Operation*, uint32_t>> unmatched(const GroupView& group, uint32_t me);

// One step of a circle: `rank` is in `operation`, which `other` has not entered.
struct Wait {
  // the name of the group, for people
  std::string group;
  uint32_t rank;
  uint32_t other;
  std::string operation;
};
// Ranks that wait for each other in a circle, in one group or across several; empty: there is none. The
// circle leads through processes: a process that is a rank of several groups may hold up one group while
// it waits in another.
std::vector<Wait> circle(const std::map<std::string, GroupView>& groups);

}  // namespace hdt::daemon
