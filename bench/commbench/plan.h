// plan.h: what one row of the table measures, and what it means for each rank: counts, offsets, bandwidth
// factor.
#pragma once

#include <cstddef>

#include "bench/commbench/names.h"

namespace hdt::bench {

enum class Placement { kOutOfPlace, kInPlace };

struct Row {
  Collective what = Collective::kAllReduce;
  size_t asked_bytes = 0;
  hdtDataType_t type = HDT_FLOAT32;
  hdtRedOp_t op = HDT_SUM;  // of a collective that reduces
  int root = 0;             // of a rooted one
};

// A row on a group of `ranks`. As in nccl-tests, the size of what has a part for each rank (allgather,
// reduce-scatter, alltoall, gather, scatter) is that of its full buffer, cut down to a whole count for every
// rank.
struct Shape {
  size_t count = 0;          // the argument of the call
  size_t bytes = 0;          // the size the row shows
  size_t send_elements = 0;  // in the send buffer
  size_t recv_elements = 0;  // in the receive buffer
};
Shape shape_of(const Row& row, int ranks);

// False for what only moves bytes from rank to rank (a rank cannot send from the memory it receives into) and
// a barrier.
bool has_in_place(Collective what);

// Bus bandwidth is size / time times this factor: what the busiest link of the best algorithm carries, so
// that it can be held against the hardware's (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(Collective what, int ranks);

}  // namespace hdt::bench
