// copy_bytes.h: a copy that may be of nothing, or to the place where the bytes are already, as in calls
// in place (memcpy() allows neither null pointers nor the same place); and whether the results of a call are
// written past the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/kernels.h"
#include "ipc/call.h"

namespace hdt::client {

// The ranges are the same or do not overlap. Pointers may be null if `bytes` is 0.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}
void copy_bytes(void* to, const void* from, size_t bytes, collectives::Stores stores);

// How results go to recvbufs: past the caches if the buffers of the call on one node, with `local_ranks` of
// the group's `ranks`, are more than the caches hold. What is written is in no cache any more then when it is
// read.
collectives::Stores stores_for(const ipc::Call& call, uint32_t ranks, uint32_t local_ranks);

}  // namespace hdt::client
