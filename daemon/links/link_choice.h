// link_choice.h: how a group comes to a link to another node. There is one candidate for each backend
// that both nodes may use for the group's class, best first. The node that dials tries them in order,
// and takes the first that works. The other node learns the choice from the link on which the group's
// hello comes, so the two cannot disagree.
//
// This file has the data and pure functions; LinkChooser does the trying.
#pragma once

#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/protocol/node.h"
#include "transports/net/subnet.h"
#include "transports/transport.h"

namespace hdt::daemon {

// Identifies a link of an engine: the other node, and the number that the dialer gave the link.
struct LinkId {
  NodeId node;
  uint32_t number = 0;
  auto operator<=>(const LinkId&) const = default;
};

// A backend over which the link could be made.
struct LinkCandidate {
  std::string backend;
  // A path: a device of this engine and an address of the other node.
  struct Pair {
    // the engine's number of the device
    size_t device = 0;
    RailEnd ours;
    RailEnd theirs;
    // "eth0 10.0.0.1 - eth1 10.0.0.2:4000"
    std::string describe() const;
  };
  // the paths that are dialled first
  std::vector<Pair> pairs;
  // paths that are dialled when none of `pairs` leads there
  std::vector<Pair> spares;
  // why the latest attempt failed; "": it was not tried yet, or it works
  std::string failure;
};

// A group's choice for one other node. Owned by LinkChooser, and kept for a while after the group has
// ended.
struct LinkChoice {
  // the other node, with the ends that the class may use there
  NodeInfo peer;
  std::string group_class;
  // this node dials the links between the two
  bool dials = false;
  // best first; at the end that does not dial, for reports only
  std::vector<LinkCandidate> candidates;
  // if this node dials: the candidate that is tried or chosen; candidates.size(): all have failed
  size_t current = 0;
  // the link that is tried or chosen; if the other node dials, only once it is chosen
  std::optional<LinkId> link;
  // the backend of the chosen link; "": the group has no link yet
  std::string chosen;
  // if the other node dials: when it must have connected
  Deadline dialled_by = Deadline::never();

  // The failures of all candidates in one text: "rdma: refused; tcp: no answer".
  std::string failures() const;
  // For hdtctl explain: the choice and every candidate with its outcome.
  nlohmann::json report() const;
};

// The candidates between two nodes of a group. If their orders of backends differ, that of the node that
// comes first in the group counts (`own_is_first`: this one), so both ends have the same order. `devices`
// are the devices of engine `engine` on this node, which listen at `addresses`, in the same order. `host`
// are the addresses of this host. Pure.
std::vector<LinkCandidate> link_candidates(const NodeInfo& own, const NodeInfo& peer, bool own_is_first,
                                           uint32_t engine, const std::vector<transport::DeviceInfo>& devices,
                                           const std::vector<std::string>& addresses,
                                           const transport::OwnAddresses& host);

// Why no backend fits both nodes for groups of this class; "": at least one does.
std::string misfit(const NodeInfo& a, const NodeInfo& b, const std::string& group_class);

}  // namespace hdt::daemon
