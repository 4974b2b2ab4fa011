// node.cc: node ids as text, and the wire form of RailEnd and NodeInfo.
#include "daemon/protocol/node.h"

#include <fmt/format.h>

#include <charconv>

#include "ipc/segment.h"
#include "ipc/wake_page.h"

namespace hdt::daemon {

std::string id_text(const NodeId& id) {
  std::string text;
  for (const std::byte byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

// A text without a node id in front is taken as addresses as a whole: connecting to them then reports
// what is wrong with them.
DaemonAddress DaemonAddress::parse(const std::string& text) {
  NodeId id;
  const size_t digits = 2 * id.bytes.size();
  // 32 digits and '@', or it is no id. An IPv6 address or host name cannot look like that.
  if (text.size() <= digits || text[digits] != '@') return {std::nullopt, text};
  for (size_t i = 0; i < id.bytes.size(); ++i) {
    uint8_t byte = 0;
    const char* const first = text.data() + 2 * i;
    if (std::from_chars(first, first + 2, byte, 16).ptr != first + 2) return {std::nullopt, text};
    id.bytes[i] = std::byte{byte};
  }
  return {id, text.substr(digits + 1)};
}

// In the order of preference, which the receiver relies on (BackendPlan::ends_for()).
void put(Writer& writer, const std::vector<RailEnd>& ends) {
  writer.put(static_cast<uint32_t>(ends.size()));
  for (const RailEnd& end : ends) writer.put_string(end.backend).put_string(end.nic).put_string(end.address);
}

// Foreign: the count is limited before anything is read for it, and names are checked to be printable
// (get_name()).
std::vector<RailEnd> get_rail_ends(Reader& reader) {
  std::vector<RailEnd> ends;
  const uint32_t count = reader.get_count(kMaxRails);
  for (uint32_t i = 0; i < count && !reader.failed(); ++i) {
    RailEnd& end = ends.emplace_back();
    end.backend = reader.get_name(kMaxName);
    end.nic = reader.get_name(kMaxName);
    // The backend made this address, so it may be any bytes.
    end.address = reader.get_string(kMaxName);
  }
  return ends;
}

// One list of ends for each engine. Their number is the number of the node's engine threads.
void put(Writer& writer, const NodeInfo& node) {
  writer.put_bytes(node.id.bytes)
      .put_string(node.name)
      .put_string(node.address)
      .put(static_cast<uint32_t>(node.rails.size()));
  for (const auto& devices : node.rails) put(writer, devices);
}

// Foreign as well. That the node is who it says it is follows from the handshake
// (ControlNetwork::is_from()), and not from here.
NodeInfo get_node(Reader& reader) {
  NodeInfo node;
  reader.get_bytes(node.id.bytes);
  node.name = reader.get_name(kMaxName);
  // A place in the segment holds the address with a closing zero, hence the one byte less.
  node.address = reader.get_name(ipc::kMaxAddressBytes - 1);
  const uint32_t engines = reader.get_count(ipc::kMaxEngines);
  for (uint32_t e = 0; e < engines && !reader.failed(); ++e) node.rails.push_back(get_rail_ends(reader));
  return node;
}

}  // namespace hdt::daemon
