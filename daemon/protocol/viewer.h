// viewer.h: on whose behalf diagnosis is done. Root and the daemon's own user see everything; another user
// sees the groups that a process of its own is a rank of, and of others how many there are. The user of a
// process is who its socket's other end is, as the kernel says; of processes on other nodes, who their daemon
// says they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/codec.h"
#include "daemon/protocol/node.h"

namespace hdt::daemon {

struct NodeFacts;

struct Viewer {
  bool all = false;
  // None: a user that has no number here (base/users.h), so that it cannot be told from others.
  std::optional<uint32_t> uid;
  // GroupFacts::id of groups that the viewer is in on the node where it asks: known to be its own on other
  // nodes as well, where its ranks may have another user.
  std::vector<std::string> groups;

  bool sees(const std::vector<uint32_t>& users) const;
  bool sees(const std::string& group, const std::vector<uint32_t>& users) const;
};

inline constexpr size_t kMaxViewerGroups = 4096;

// Of a process with this user, as the kernel gives it.
Viewer viewer_of(uint32_t uid);

void put(Writer& writer, const Viewer& viewer);
Viewer get_viewer(Reader& reader);

// Takes out of a node's facts what the viewer does not see: groups, and rails to nodes that none of its
// groups is on. Counts what was taken out in NodeFacts::hidden.
void hide_others(NodeFacts& facts, const Viewer& viewer);
// The same for groups that this node is no member of: where daemons prove nothing to each other, they hear of
// the groups that they share.
void hide_from_node(NodeFacts& facts, const NodeId& asker);
// GroupFacts::id of all groups in there.
std::vector<std::string> groups_in(const NodeFacts& facts);

}  // namespace hdt::daemon
