// slot_chunk.h: one chunk of a call, as a rank moves it through the node's slots (ipc/segment.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ipc/partition.h"

namespace hdt::client {

// A value that stage(), combine() and take() get; it owns nothing.
struct SlotChunk {
  ipc::Call call;
  // The range of elements, within the call.
  ipc::Chunk part;
  // The chunk's number in the life of the group, from which its slot follows.
  uint64_t number;
  // The user's buffers, from the beginning of the call. Null if this rank has none.
  const std::byte* send;
  std::byte* recv;
};

}  // namespace hdt::client
