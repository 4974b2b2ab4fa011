// call.h: one collective call, as the ranks of a group publish it in shared memory and as daemons
// compare it. The structs here lie in memory that other processes write, so they are plain data without
// pointers, and their layout is a part of kSegmentVersion (segment.h).
#pragma once

#include <cstdint>

#include "collectives/types.h"

namespace hdt::ipc {

// One collective call, as a rank made it. All ranks of the group must publish equal calls with the same
// sequence number; a difference fails the group with kMismatch. A call that comes from foreign memory is
// checked with is_sound() or validate() (plan.h) before it is used.
struct Call {
  // Elements, as the C call counts them: of the whole buffer for allreduce, reduce and broadcast; of one
  // rank's block for reduce-scatter and allgather; 0 for a barrier.
  uint64_t count = 0;
  // The rank in the group. 0 for collectives without a root, so that equal calls compare equal.
  int32_t root = 0;
  collectives::Collective what = collectives::Collective::kBarrier;
  collectives::DataType type = collectives::DataType::kInt32;
  // kSum for collectives that combine nothing.
  collectives::ReduceOp op = collectives::ReduceOp::kSum;
  // 0: the call is an operation of its own. Otherwise it is one of the broadcasts or reduces that make up an
  // hdtAllGatherV or hdtReduceScatterV: 1 to 127, counted for each root and round again after 127, and
  // kLastPart in the last one of the operation. So no operation's parts begin another one's, and ranks that
  // pass different counts make calls that differ.
  uint8_t part = 0;
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 16);
inline constexpr uint8_t kLastPart = 0x80;
inline constexpr uint8_t kPartNumbers = 127;
// The number of a part among those of its root, 1 to kPartNumbers; 0: no part.
constexpr uint8_t part_number(uint8_t part) { return part & kPartNumbers; }

// Where a rank's buffers are. A buffer whose `..._memory` is not 0 lies in memory of hdtMemAlloc: the
// number is the one that the daemon gave this memory for this group, and `send` or `recv` is the offset
// in it, in bytes. If the number is 0, `send` or `recv` is the address of the buffer in the rank's
// process.
struct Exposure {
  uint64_t send = 0;
  uint64_t recv = 0;
  uint64_t send_memory = 0;
  uint64_t recv_memory = 0;
};

// A call in a rank's state (`RankState::calls`), in groups of several nodes. The daemon uses a buffer whose
// memory number is not 0 in place; the other buffers go through the node's slots.
struct Entered {
  Call call;
  Exposure where;
};

}  // namespace hdt::ipc
