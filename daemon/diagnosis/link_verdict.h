// link_verdict.h: what is wrong with the rails between a group's nodes, as verdict.h asks it.
#pragma once

#include <optional>
#include <string>

#include "daemon/diagnosis/group_view.h"
#include "daemon/diagnosis/verdict.h"

namespace hdt::daemon {

struct LinkTrouble {
  Cause cause = Cause::kDeadRail;  // dead link, dead rail or slow rail
  std::string node;                // whose end of the rail it is
  std::string words;
};

// The worst one. Nothing: the rails are as they should be, or the group is of one node.
std::optional<LinkTrouble> judge_links(const GroupView& group);

// Since the latest chunk of the group came from another node, over all nodes; nothing: none has come, or it
// is of one node.
std::optional<double> quiet_seconds(const GroupView& group);

}  // namespace hdt::daemon
