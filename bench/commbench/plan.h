// plan.h: what one row of the table measures, and what that means for each rank: counts, offsets and the
// bandwidth factor.
#pragma once

#include <cstddef>

#include "bench/commbench/names.h"

namespace hdt::bench {

// Whether send and receive buffer are two, or one.
enum class Placement { kOutOfPlace, kInPlace };

// One measurement, before the number of ranks is known.
struct Row {
  Collective what = Collective::kAllReduce;
  // The size of the sweep. Shape::bytes may be a little less.
  size_t asked_bytes = 0;
  hdtDataType_t type = HDT_FLOAT32;
  // Only of a collective that reduces.
  hdtRedOp_t op = HDT_SUM;
  // Only of a rooted one.
  int root = 0;
};

// A row on a group. As in nccl-tests, a collective with a part for each rank (allgather, reduce-scatter,
// alltoall, gather, scatter) has the size of its full buffer, cut down to an equal count for all ranks.
struct Shape {
  // The `count` argument of the call, in elements.
  size_t count = 0;
  // The size that the row shows.
  size_t bytes = 0;
  // Elements in the send buffer, and below in the receive buffer, of each rank.
  size_t send_elements = 0;
  size_t recv_elements = 0;  // in the receive buffer
};
// The count may be 0, if the size is less than an element for each rank.
Shape shape_of(const Row& row, int ranks);

// False for a barrier, and for collectives that only move data from rank to rank: a rank cannot send
// from the memory into which it receives.
bool has_in_place(Collective what);

// Bus bandwidth is size / time x this factor: what the busiest link of the best algorithm carries. It
// can therefore be compared with the hardware's bandwidth (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(Collective what, int ranks);

}  // namespace hdt::bench
