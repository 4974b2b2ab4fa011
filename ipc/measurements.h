// measurements.h: what nodes have measured of themselves and of the links between them, as they tell each
// other when a group is made. In whole numbers, so that all nodes hold the very same: from them each computes
// what the others compute.
#pragma once

#include <cstdint>
#include <vector>

#include "base/codec.h"

namespace hdt::session {

// Groups of more nodes go without: their table and the time to rank algorithms by it grow with the square of
// the nodes.
inline constexpr uint32_t kMostMeasuredNodes = 32;

// 0 is: not measured.
struct LinkRates {
  uint64_t latency_ns = 0;      // one way
  uint64_t bytes_s = 0;         // while nothing comes the other way
  uint64_t duplex_bytes_s = 0;  // while as much does
  bool measured() const { return latency_ns != 0 && bytes_s != 0 && duplex_bytes_s != 0; }
  bool operator==(const LinkRates&) const = default;
};
struct MemoryRates {
  uint64_t copy_bytes_s = 0;
  uint64_t reduce_bytes_s = 0;  // of the result of combining two operands
  bool measured() const { return copy_bytes_s != 0 && reduce_bytes_s != 0; }
  bool operator==(const MemoryRates&) const = default;
};

// One node's part of the table.
struct NodeRates {
  MemoryRates memory;
  std::vector<LinkRates> links;  // to every node of the group, in their order; its own entry is unused
  bool operator==(const NodeRates&) const = default;
};

void put(Writer& writer, const NodeRates& rates);
NodeRates get_node_rates(Reader& reader);

}  // namespace hdt::session
