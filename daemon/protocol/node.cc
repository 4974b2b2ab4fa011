// node.cc: node ids as text.
#include "daemon/protocol/node.h"

#include <fmt/format.h>

#include <charconv>

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

}  // namespace hdt::daemon
