// kernels.h: element-wise arithmetic on host memory, the same for ranks (node-local stage) and the daemon
// (stage between nodes). SIMD through Highway, chosen at run time. Pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.h"

namespace hdt::collectives {

// How results are written. kStreaming keeps what is not read again soon out of the caches and saves reading
// it before it is overwritten; for calls that move more than the caches hold. Where it does not apply (a
// destination that is a source too, destinations aligned differently), results are written as with kCached.
enum class Stores : uint8_t { kCached, kStreaming };

// Every destination[i] = sources[0][i] op sources[1][i] op ..., i < count, combined from left to right, at
// least one source and one destination. A destination may be one of the sources, else nothing overlaps. fp16,
// bf16 and fp8 are combined in fp32 and rounded once, to nearest even. kAvg and kPreMulSum combine as kSum:
// dividing is copy_divided's, multiplying scale's. Integers wrap.
void reduce(DataType type, ReduceOp op, std::span<const void* const> sources,
            std::span<void* const> destinations, size_t count, Stores stores = Stores::kCached);

// dst[i] = src[i] / divisor; integers round toward zero. divisor >= 1. dst may equal src.
void copy_divided(DataType type, const void* src, void* dst, size_t count, int divisor);

// dst[i] = src[i] * *scalar, both of `type`. dst may equal src.
void scale(DataType type, const void* scalar, const void* src, void* dst, size_t count);

}  // namespace hdt::collectives
