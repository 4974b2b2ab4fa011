// viewer.cc: who a viewer is, and the filter that removes from a node's facts what a viewer may not see.
#include "daemon/protocol/viewer.h"

#include <algorithm>
#include <set>

#include "base/users.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

namespace {

// Keeps the groups for which `is_shown` is true. It is asked about every group, running or being made
// (GroupFacts and MakingFacts).
template <typename IsShown>
void keep_groups(NodeFacts& facts, const IsShown& is_shown) {
  const auto hidden = [&](const auto& group) { return !is_shown(group); };
  // A set, as a group being made appears twice where this node's ranks wait for it and this node
  // coordinates it: it is counted once.
  std::set<std::string> taken_out;
  for (const GroupFacts& group : facts.groups) {
    if (hidden(group)) taken_out.insert(group.id);
  }
  for (const MakingFacts& group : facts.making) {
    if (hidden(group)) taken_out.insert(group.id);
  }
  facts.hidden += taken_out.size();
  std::erase_if(facts.groups, hidden);
  std::erase_if(facts.making, hidden);
  // A rail belongs to two nodes, not to a group. It is shown if some visible group spans these nodes.
  std::set<std::string> nodes;
  for (const GroupFacts& group : facts.groups) {
    for (const GroupNodeFacts& node : group.nodes) nodes.insert(node.name);
  }
  std::erase_if(facts.rails, [&](const RailFacts& rail) { return !nodes.contains(rail.node); });
}

}  // namespace

// A viewer without a number of its own matches no user, even if another user has the same overflow
// number.
bool Viewer::sees(const std::vector<uint32_t>& users) const {
  return all || (uid && std::find(users.begin(), users.end(), *uid) != users.end());
}

// The groups are those that the viewer sees on its own node. On another node its number may belong to
// somebody else.
bool Viewer::sees(const std::string& group, const std::vector<uint32_t>& users) const {
  return sees(users) || std::find(groups.begin(), groups.end(), group) != groups.end();
}

// The uid must come from the kernel (SO_PEERCRED), and never from a message.
Viewer viewer_of(uint32_t uid) {
  // The daemon's own user can read the daemon's memory anyhow.
  if (uid == 0 || is_this_user(uid)) return {true, uid, {}};
  return {false, has_a_number(uid) ? std::optional(uid) : std::nullopt, {}};
}

// Removed before the facts leave this node, so that the asker's side need not be trusted with them.
void hide_others(NodeFacts& facts, const Viewer& viewer) {
  if (viewer.all) return;
  keep_groups(facts, [&](const auto& group) { return viewer.sees(group.id, group.users); });
}

// For an asker that nothing vouches for: it gets the groups that have its node among their members, and no
// others.
void hide_from_node(NodeFacts& facts, const NodeId& asker) {
  keep_groups(facts, [&](const auto& group) {
    return std::find(group.members.begin(), group.members.end(), asker) != group.members.end();
  });
}

// Sorted and without duplicates: a group that is being made may be in both lists.
std::vector<std::string> groups_in(const NodeFacts& facts) {
  std::set<std::string> ids;
  for (const GroupFacts& group : facts.groups) ids.insert(group.id);
  for (const MakingFacts& group : facts.making) ids.insert(group.id);
  return {ids.begin(), ids.end()};
}

}  // namespace hdt::daemon
