// call.h: one collective call, as ranks publish it and daemons compare it.
#pragma once

#include <cstdint>

#include "collectives/types.h"

namespace hdt::session {

// One collective call, as a rank made it. All ranks of the group must publish equal ones.
struct Call {
  uint64_t count = 0;
  int32_t root = 0;
  collectives::Collective what = collectives::Collective::kBarrier;
  collectives::DataType type = collectives::DataType::kInt32;
  collectives::ReduceOp op = collectives::ReduceOp::kSum;
  uint8_t reserved = 0;
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 16);

// Where a rank's buffers are: in memory `..._memory` that it shares through the daemon, at this offset; or,
// if that is 0, at this address of its process.
struct Exposure {
  uint64_t send = 0;
  uint64_t recv = 0;
  uint64_t send_memory = 0;
  uint64_t recv_memory = 0;
  uint32_t copied = 0;  // post.h: the contribution is in the payload, too
  // Of the node's first rank, for all: where not all buffers are shared, go through the kernel, if all may.
  uint32_t by_kernel = 0;
};

// A call in a rank's board. Groups of several nodes: a buffer whose memory is not 0 is used in place by the
// daemon; the others go through the node's slots.
struct Entered {
  Call call;
  Exposure where;
};

}  // namespace hdt::session
