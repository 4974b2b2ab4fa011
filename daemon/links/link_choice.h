// link_choice.h: which link a group takes to another node: the candidates, best first, one for each backend
// that both nodes may use for the group's class, what trying them has shown, and the choice. The node that
// dials tries; the other one learns the choice from the link on which the group's hello comes.
#pragma once

#include <compare>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/protocol/node.h"
#include "transports/net/subnet.h"
#include "transports/transport.h"

namespace hdt::daemon {

// A link of an engine: the other node, and the dialer's number of it.
struct LinkId {
  NodeId node;
  uint32_t number = 0;
  auto operator<=>(const LinkId&) const = default;
};

struct LinkCandidate {
  std::string backend;
  struct Pair {  // a device of this engine and an address of theirs
    size_t device = 0;
    RailEnd ours;
    RailEnd theirs;
    // "eth0 10.0.0.1 - eth1 10.0.0.2:4000"
    std::string describe() const;
  };
  std::vector<Pair> pairs;
  std::vector<Pair> spares;  // tried when no pair leads there
  std::string failure;       // what trying it has shown; empty: nothing yet, or it works
};

struct LinkChoice {
  NodeInfo peer;  // with the rail ends that it may use for the class
  std::string group_class;
  bool dials = false;
  std::vector<LinkCandidate> candidates;
  size_t current = 0;                       // dialer: the candidate that is tried, or chosen
  std::optional<LinkId> link;               // dialer: tried or chosen; else: chosen
  std::string chosen;                       // the backend, when the group has the link
  Deadline dialled_by = Deadline::never();  // else: when the other one must have connected

  // All that was tried, in one text: "rdma: refused; tcp: no answer".
  std::string failures() const;
  nlohmann::json report() const;
};

// The candidates between two nodes of a group. Where their orders differ, that of `first`, the one that comes
// first in the group, counts. `devices` are those of engine `engine`, which listens at `addresses`; `host`:
// of this one.
std::vector<LinkCandidate> link_candidates(const NodeInfo& own, const NodeInfo& peer, bool own_is_first,
                                           uint32_t engine, const std::vector<transport::DeviceInfo>& devices,
                                           const std::vector<std::string>& addresses,
                                           const transport::OwnAddresses& host);

// Why no backend fits both nodes for groups of this class; empty: at least one does.
std::string misfit(const NodeInfo& a, const NodeInfo& b, const std::string& group_class);

}  // namespace hdt::daemon
