// copy_bytes.h: a copy that may be of nothing, or to where the bytes are already (calls in place).
#pragma once

#include <cstddef>
#include <cstring>

namespace hdt::client {

inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace hdt::client
