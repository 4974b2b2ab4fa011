// copy_bytes.h: a copy that may be of nothing, or to the place where the bytes are already, as in calls
// in place. memcpy() allows neither null pointers nor the same place.
#pragma once

#include <cstddef>
#include <cstring>

namespace hdt::client {

// The ranges are the same or do not overlap. Pointers may be null if `bytes` is 0.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace hdt::client
