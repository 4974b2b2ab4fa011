// kernels.h: element-wise arithmetic on host memory, the same for ranks (which combine within a node) and
// for the daemon (which combines between nodes). SIMD through Highway; the instructions are chosen at run
// time. Pointers need no alignment. All functions are pure but for their destinations, and any thread may
// call them. They take known types and operations only (is_known()); the caller has checked that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.h"

namespace hdt::collectives {

// How results are written. kStreaming keeps what is not read again soon out of the caches, and saves
// reading it before it is overwritten. It is for calls that move more than the caches hold. If it does
// not apply (a destination that is a source too, or destinations aligned differently), results are
// written as with kCached.
enum class Stores : uint8_t { kCached, kStreaming };

// Every destination[i] = sources[0][i] op sources[1][i] op ..., for i < count elements, combined from
// left to right. There is at least one source and one destination. A destination may be one of the
// sources; otherwise nothing overlaps. fp16, bf16 and fp8 are combined in fp32 and rounded once, to
// nearest even. kAvg and kPreMulSum combine as kSum: copy_divided() divides, scale() multiplies.
// Integers wrap. Bitwise reductions combine the bits of any type. An element's result does not depend on
// its position.
void reduce(DataType type, ReduceOp op, std::span<const void* const> sources,
            std::span<void* const> destinations, size_t count, Stores stores = Stores::kCached);

// dst[i] = src[i] / divisor; integers round toward zero. divisor >= 1. dst may be equal to src, but not
// overlap it otherwise.
void copy_divided(DataType type, const void* src, void* dst, size_t count, int divisor);

// dst[i] = src[i] * *scalar, both of `type`. dst may be equal to src, but not overlap it otherwise.
void scale(DataType type, const void* scalar, const void* src, void* dst, size_t count);

}  // namespace hdt::collectives
