// viewer.cc: who a viewer is, its wire form, and the filter that removes from a node's facts what a
// viewer may not see.
#include "daemon/protocol/viewer.h"

#include <algorithm>
#include <set>

#include "base/users.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

namespace {

// The maximum length in bytes of a group's public name on the wire. A name has 16 digits.
constexpr size_t kMaxGroupId = 64;

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

void put(Writer& writer, const Viewer& viewer) {
  writer.put(uint8_t{viewer.all}).put(uint8_t{viewer.uid.has_value()}).put(viewer.uid.value_or(0));
  // Names beyond the limit are left out: the viewer then sees fewer groups on other nodes, which is safe.
  const auto count = static_cast<uint32_t>(std::min(viewer.groups.size(), kMaxViewerGroups));
  writer.put(count);
  for (uint32_t i = 0; i < count; ++i) writer.put_string(viewer.groups[i]);
}

// Foreign, if it comes from another node: without a cluster key nothing vouches for it, and
// hide_from_node() limits what it can see.
Viewer get_viewer(Reader& reader) {
  Viewer viewer;
  const auto all = reader.get<uint8_t>();
  const auto known = reader.get<uint8_t>();
  const auto uid = reader.get<uint32_t>();
  // Booleans are 0 or 1, and a viewer without a number has none on the wire either.
  if (all > 1 || known > 1 || (known == 0 && uid != 0)) reader.fail();
  viewer.all = all == 1;
  if (known == 1) viewer.uid = uid;
  const uint32_t count = reader.get_count(kMaxViewerGroups);
  for (uint32_t i = 0; i < count && !reader.failed(); ++i)
    viewer.groups.push_back(reader.get_string(kMaxGroupId));
  return viewer;
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
