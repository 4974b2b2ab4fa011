// group_view.h: a group as all its nodes together have told of it: what verdict.h judges.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/saturate.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

struct MemberView {
  std::string node;
  const NodeFacts* told_by = nullptr;  // null: nothing is known of the rank
  const RankFacts* facts = nullptr;

  // Collective calls it has made, also such as wait for their turn to be published.
  uint64_t calls() const;
  bool stopped() const { return facts != nullptr && (facts->process == "T" || facts->process == "t"); }
  bool dead() const { return facts != nullptr && !facts->left && facts->process.empty(); }
  // The oldest collective under way; null: none.
  const session::Operation* current() const;
  // The last operation that it ended; null: none is recorded.
  const session::Operation* last() const;
};

struct GroupView {
  const GroupFacts* facts = nullptr;  // of the first node that told
  std::map<uint32_t, MemberView> members;
  std::vector<const NodeFacts*> silent;  // its nodes that do not answer

  // In the time of the asking node.
  static int64_t time_of(const MemberView& member, int64_t ns) {
    return saturating_sub(ns, member.told_by->offset_ns);
  }
};

// By id. A failure that only some nodes know counts.
std::map<std::string, GroupView> views_of(const std::vector<NodeFacts>& facts);

// Messages of `me` that the other side has not met with one of its own: (operation, the other rank).
std::vector<std::pair<const session::Operation*, uint32_t>> unmatched(const GroupView& group, uint32_t me);

struct Wait {
  std::string group;  // its name
  uint32_t rank;      // that waits
  uint32_t other;     // for this one
  std::string operation;
};
// Ranks that wait for each other in a circle, in one group or across several; empty: there is none. A process
// that is a rank of several groups is what the circle goes through.
std::vector<Wait> circle(const std::map<std::string, GroupView>& groups);

}  // namespace hdt::daemon
