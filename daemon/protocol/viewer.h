// viewer.h: on whose behalf a diagnosis is made, and what that viewer may see. Root and the daemon's own
// user see everything. Another user sees the groups in which a process of its own is a rank, and of all
// others only how many there are.
//
// The user of a process is that of the peer of its socket, as the kernel reports it. For a process on
// another node, that node's daemon vouches for the user in its Inquiry. This is only as good as the trust
// between daemons, hence hide_from_node().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/codec.h"
#include "daemon/protocol/node.h"

namespace hdt::daemon {

struct NodeFacts;

// A viewer sees nothing by default. A plain value; used on the control thread and, as a copy, on the
// engines.
struct Viewer {
  // true: root or the daemon's own user
  bool all = false;
  // The user's number on the node where it asks. Nothing: the user has no number there (base/users.h), so
  // it cannot be distinguished from other users and sees nothing by its number.
  std::optional<uint32_t> uid;
  // The public names of the groups that the viewer sees on the node where it asks. Other nodes show these
  // groups as well, since the viewer's ranks may have another user number there.
  std::vector<std::string> groups;

  // Whether one of these users is the viewer's.
  bool sees(const std::vector<uint32_t>& users) const;
  // Whether the viewer may see a group with this public name and these users of ranks.
  bool sees(const std::string& group, const std::vector<uint32_t>& users) const;
};

// The maximum of Viewer::groups on the wire. Whoever asks leaves out what is beyond it: the viewer then sees
// fewer groups on other nodes, which is safe.
inline constexpr uint32_t kMaxViewerGroups = 4096;

// The viewer for a process of this user, as the kernel reported it for the process's socket.
Viewer viewer_of(uint32_t uid);

// The wire form (base/codec.h). A viewer of another node is foreign: without a cluster key nothing vouches
// for it, and hide_from_node() limits what it can see.
void fields(auto& c, Is<Viewer> auto& viewer) {
  // The maximum length in bytes of a group's public name; a name has 16 digits.
  constexpr size_t kMaxGroupId = 64;
  c.flag(viewer.all);
  c.optional(viewer.uid);
  c.list(viewer.groups, kMaxViewerGroups, [&](auto& group) { c.string(group, kMaxGroupId); });
}

// Removes from a node's facts what the viewer may not see: groups, groups being made, and rails to nodes
// that none of the remaining groups is on. Adds the number of removed groups to NodeFacts::hidden.
void hide_others(NodeFacts& facts, const Viewer& viewer);
// The same for groups in which the daemon `asker` is no member. It is used where daemons prove nothing to
// each other (no cluster key): such a daemon gets the groups that the two share, whatever user it
// vouches for.
void hide_from_node(NodeFacts& facts, const NodeId& asker);
// The public names of all groups in the facts, those being made included; sorted, each once.
std::vector<std::string> groups_in(const NodeFacts& facts);

}  // namespace hdt::daemon
