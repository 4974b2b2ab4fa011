// measurements.h: what nodes have measured of themselves and of the links between them, as they send it
// to each other when a group is made. The values are whole numbers, so that all nodes hold the very same
// ones: each node computes from them which algorithm runs, and all must come to the same result.
// daemon/links/ does the measuring.
#pragma once

#include <cstdint>
#include <vector>

#include "base/codec.h"

namespace hdt::ipc {

// The maximum of nodes in a group that uses measurements. The table, and the time to rank algorithms by
// it, grow with the square of the nodes.
inline constexpr uint32_t kMostMeasuredNodes = 32;

// A link in one direction, as its sending node has measured it. 0 means: not measured.
struct LinkRates {
  // One way.
  uint64_t latency_ns = 0;
  // Bytes per second while nothing comes the other way.
  uint64_t bytes_s = 0;
  // Bytes per second in this direction while as much comes the other way.
  uint64_t duplex_bytes_s = 0;
  // False if any value is missing: such a link is not predicted at all.
  bool measured() const { return latency_ns != 0 && bytes_s != 0 && duplex_bytes_s != 0; }
  bool operator==(const LinkRates&) const = default;
};
// The memory of one node, for data that is in no cache. 0 means: not measured.
struct MemoryRates {
  // Bytes per second that one engine thread copies.
  uint64_t copy_bytes_s = 0;
  // Bytes of the result per second when two operands are combined.
  uint64_t reduce_bytes_s = 0;
  bool measured() const { return copy_bytes_s != 0 && reduce_bytes_s != 0; }
  bool operator==(const MemoryRates&) const = default;
};

// One node's part of the table.
struct NodeRates {
  MemoryRates memory;
  // To every node of the group, in their order. The node's own entry is unused.
  std::vector<LinkRates> links;
  bool operator==(const NodeRates&) const = default;
};

// Their form in messages between daemons (base/codec.h). Whether the number of links is that of the group's
// nodes is for the caller to check.
void fields(auto& c, Is<LinkRates> auto& rates) {
  c.number(rates.latency_ns, rates.bytes_s, rates.duplex_bytes_s);
}
void fields(auto& c, Is<NodeRates> auto& rates) {
  c.number(rates.memory.copy_bytes_s, rates.memory.reduce_bytes_s);
  c.list(rates.links, kMostMeasuredNodes);
}

}  // namespace hdt::ipc
