#include "daemon/node.h"

#include "session/page.h"
#include "session/segment.h"

namespace hdt::daemon {

namespace {
constexpr size_t kMaxName = 256;
}

void put(Writer& writer, const NodeInfo& node) {
  writer.put_bytes(node.id.bytes)
      .put_string(node.name)
      .put_string(node.address)
      .put(static_cast<uint32_t>(node.rails.size()));
  for (const auto& devices : node.rails) {
    writer.put(static_cast<uint32_t>(devices.size()));
    for (const RailEnd& end : devices)
      writer.put_string(end.backend).put_string(end.nic).put_string(end.address);
  }
}

NodeInfo get_node(Reader& reader) {
  NodeInfo node;
  reader.get_bytes(node.id.bytes);
  node.name = reader.get_string(kMaxName);
  node.address = reader.get_string(session::kMaxAddressBytes - 1);
  const uint32_t engines = reader.get_count(session::kMaxEngines);
  for (uint32_t e = 0; e < engines; ++e) {
    auto& devices = node.rails.emplace_back();
    const uint32_t count = reader.get_count(kMaxRails);
    for (uint32_t d = 0; d < count; ++d) {
      RailEnd& end = devices.emplace_back();
      end.backend = reader.get_string(kMaxName);
      end.nic = reader.get_string(kMaxName);
      end.address = reader.get_string(kMaxName);
    }
  }
  return node;
}

}  // namespace hdt::daemon
