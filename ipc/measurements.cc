// measurements.cc: the encoding of measurements in messages between daemons.
#include "ipc/measurements.h"

namespace hdt::ipc {

void put(Writer& writer, const NodeRates& rates) {
  writer.put(rates.memory.copy_bytes_s).put(rates.memory.reduce_bytes_s);
  writer.put(static_cast<uint32_t>(rates.links.size()));
  for (const LinkRates& link : rates.links)
    writer.put(link.latency_ns).put(link.bytes_s).put(link.duplex_bytes_s);
}

NodeRates get_node_rates(Reader& reader) {
  NodeRates rates;
  rates.memory.copy_bytes_s = reader.get<uint64_t>();
  rates.memory.reduce_bytes_s = reader.get<uint64_t>();
  // The count is bounded before memory is taken, and the loop ends at the first missing byte.
  const uint32_t links = reader.get_count(kMostMeasuredNodes);
  for (uint32_t i = 0; i < links && !reader.failed(); ++i) {
    LinkRates link;
    link.latency_ns = reader.get<uint64_t>();
    link.bytes_s = reader.get<uint64_t>();
    link.duplex_bytes_s = reader.get<uint64_t>();
    rates.links.push_back(link);
  }
  return rates;
}

}  // namespace hdt::ipc
