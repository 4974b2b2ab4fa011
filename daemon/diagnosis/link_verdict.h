// link_verdict.h: what is wrong with the rails between a group's nodes, for verdict.h. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "daemon/diagnosis/group_view.h"
#include "daemon/diagnosis/verdict.h"

namespace hdt::daemon {

// A rail or link that explains why a group is slow or stands still.
struct LinkTrouble {
  // kLinkDown, kRailDown or kSlowRail
  Cause cause = Cause::kRailDown;
  // the node that has reported it, at one end of the rail
  std::string node;
  // the rest of the verdict's sentence
  std::string words;
};

// The worst trouble of all links of the group. Nothing: the rails are as they should be, or the group has
// one node.
std::optional<LinkTrouble> judge_links(const GroupView& group);

// Seconds since the latest payload of the group came from another node, over all nodes. Nothing: none has
// come, or the group has one node.
std::optional<double> quiet_seconds(const GroupView& group);

}  // namespace hdt::daemon
