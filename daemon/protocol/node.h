// node.h: who a daemon is and where it can be reached, as the other daemons need to know it. Plain
// values; all functions are pure.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/codec.h"
#include "ipc/segment.h"
#include "ipc/wake_page.h"

namespace hdt::daemon {

// The maximum number of RailEnds of one engine on the wire. A longer list is malformed.
inline constexpr uint32_t kMaxRails = 64;
// The maximum length in bytes of a name on the wire: a node, a class, a backend, a NIC, a backend's
// address.
inline constexpr size_t kMaxName = 256;

// Names one run of a daemon. It is derived from the daemon's node key and a nonce that is drawn at every
// start (node_id_of() in trust.h). So a restarted daemon is another node to its peers, and nobody can
// take over the id of another one. All zeros: no node, or one that is not known yet.
struct NodeId {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const NodeId&) const = default;
};

// 32 hexadecimal digits.
std::string id_text(const NodeId& id);

// Where a daemon accepts control connections. As one text it is a list "10.0.0.1:4000,10.0.1.1:4001", or
// the same with the node id of the intended daemon in front: "<32 hexadecimal
// digits>@10.0.0.1:4000,10.0.1.1:4001".
struct DaemonAddress {
  // nothing: any daemon at these addresses may be meant
  std::optional<NodeId> id;
  // not checked; whoever connects to them finds out what is wrong
  std::string addresses;
  // Never fails. A text without a well-formed id in front is taken as addresses as a whole.
  static DaemonAddress parse(const std::string& text);
};

// Where an engine of a node can be reached through one backend on one NIC.
struct RailEnd {
  std::string backend;
  std::string nic;
  // as the backend's Device::listen() returned it: any bytes, meaningful to that backend only
  std::string address;
  auto operator<=>(const RailEnd&) const = default;
};

// Whether node `own` dials the links between itself and `peer`. Exactly one of the two does. The answer
// stays the same over restarts, because names stay and ids do not; the ids decide only if both names are
// equal.
inline bool dials(const NodeId& own, const std::string& own_name, const NodeId& peer,
                  const std::string& peer_name) {
  return own_name != peer_name ? own_name < peer_name : own < peer;
}

// A node as others need to know it to make a group with it: its daemon travels with this in a Join, in
// the Membership, and in the messages of a restart.
struct NodeInfo {
  NodeId id;
  // the same over restarts; shown to people
  std::string name;
  // the addresses of its daemon's control connections, separated by commas, without an id
  std::string address;
  // The ends of each engine, by the engine's index. In a message about a group: only the ends that the
  // group's class may use on that node, the best backend first. On a decoded node the names are printable
  // text.
  std::vector<std::vector<RailEnd>> rails;
};

// The wire form of both (base/codec.h). The ends are in the order of preference, on which the receiver relies
// (BackendPlan::ends_for()).
void fields(auto& c, Is<RailEnd> auto& end) {
  c.name(end.backend, kMaxName);
  c.name(end.nic, kMaxName);
  // The backend made this address, so it may be any bytes.
  c.string(end.address, kMaxName);
}
// That the node is who it says it is follows from the handshake (ControlNetwork::is_from()), and not from
// here.
void fields(auto& c, Is<NodeInfo> auto& node) {
  c.bytes(node.id.bytes);
  c.name(node.name, kMaxName);
  // A place in the segment holds the address with a closing zero, hence the one byte less.
  c.name(node.address, ipc::kMaxAddressBytes - 1);
  c.list(node.rails, ipc::kMaxEngines, [&](auto& ends) { c.list(ends, kMaxRails); });
}

}  // namespace hdt::daemon
