// reference.h: contributions, and the results that collectives must give, on numbers every type represents
// exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/schedule.h"

namespace hdt::collectives::testing {

// A small whole number in the format of `type`.
void put(DataType type, int64_t value, std::byte* at);

// The contribution of node `node` as element `element`: chosen so that every partial result of `op` over up
// to 64 nodes is exact in every type (sums of 0..3, products of 1 and -1); in bytes, up to 8 nodes and not
// negative.
int64_t contribution(DataType type, ReduceOp op, int node, uint64_t element, uint64_t seed);

// The result of element `element` over all nodes.
int64_t combined(DataType type, ReduceOp op, int nodes, uint64_t element, uint64_t seed);

// The node whose block holds `element`.
int owner_of(const Problem& problem, uint64_t element);

}  // namespace hdt::collectives::testing
