// node.h: who a daemon is, as the others need to know it.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/codec.h"

namespace hdt::daemon {

inline constexpr uint32_t kMaxRails = 64;
inline constexpr size_t kMaxName = 256;  // bytes of a name on the wire: a node, a class, a backend, a NIC

// Random, made anew at every start of a daemon: a restarted daemon is another node to its peers.
struct NodeId {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const NodeId&) const = default;
};

std::string id_text(const NodeId& id);  // 32 hexadecimal digits

// Where a daemon's control connections are made, as one text: "10.0.0.1:4000,10.0.1.1:4001", or with the node
// id of the daemon that is meant in front: "<32 hexadecimal digits>@10.0.0.1:4000,10.0.1.1:4001".
struct DaemonAddress {
  std::optional<NodeId> id;
  std::string addresses;
  static DaemonAddress parse(const std::string& text);
};

// Where an engine of a node can be reached through one backend on one NIC.
struct RailEnd {
  std::string backend;
  std::string nic;
  std::string address;  // as the backend's Device::listen() gave it
  auto operator<=>(const RailEnd&) const = default;
};

// Which of two nodes dials the links between them. The same one at each start, as names stay and ids do not;
// where two have one name, the id tells.
inline bool dials(const NodeId& own, const std::string& own_name, const NodeId& peer,
                  const std::string& peer_name) {
  return own_name != peer_name ? own_name < peer_name : own < peer;
}

struct NodeInfo {
  NodeId id;
  std::string name;
  std::string address;  // of its daemon's control connections, several by commas: where groups can meet
  // By engine; in messages about a group those that its class may use on that node, best backend first.
  std::vector<std::vector<RailEnd>> rails;
};

// Those that read fail the reader on impossible values.
void put(Writer& writer, const std::vector<RailEnd>& ends);
std::vector<RailEnd> get_rail_ends(Reader& reader);
void put(Writer& writer, const NodeInfo& node);
NodeInfo get_node(Reader& reader);

}  // namespace hdt::daemon
