// shared_allocator.h: torch's CPU allocator over memory of hdtMemAlloc, so that tensors are reduced where
// they are.
#pragma once

#include <cstddef>

#include "shared_pool.h"

namespace hdt_torch {

// From now on torch's allocations of `min_bytes` and more are memory of hdtMemAlloc (SharedPool), and smaller
// ones the former allocator's. Each is freed by the allocator that made it, whatever is called later. Another
// call changes min_bytes alone.
//
// Where libhdt refuses more memory, the former allocator is asked, which is counted, and a warning is given
// once. A forked copy allocates by the former allocator, and never frees what it has of its parent's.
void use_shared_memory(size_t min_bytes);

struct SharedMemoryFigures {
  SharedPool::Figures pool;
  size_t min_bytes = 0;  // 0: use_shared_memory() was not called
  // Allocations of min_bytes and more that the former allocator got, and their bytes.
  size_t fallbacks = 0;
  size_t fallback_bytes = 0;
};
SharedMemoryFigures shared_memory_figures();

}  // namespace hdt_torch
