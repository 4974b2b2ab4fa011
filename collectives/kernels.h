// kernels.h: element-wise arithmetic on host memory, the same for ranks (node-local stage) and the daemon
// (stage between nodes). SIMD through Highway, chosen at run time. Pointers need no alignment.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/types.h"

namespace hdt::collectives {

// dst[i] = sources[0][i] op sources[1][i] op ..., i < count, combined from left to right, at least one source. dst is
// equal to no source (a reduction step never overwrites its input). fp16 and bf16 are combined in fp32 and
// rounded once, to nearest even. kAvg combines as kSum: the division is copy_divided's. Integers wrap.
void reduce(DataType type, ReduceOp op, std::span<const void* const> sources, void* dst, size_t count);

// dst[i] = src[i] / divisor; integers round toward zero. divisor >= 1. dst may equal src.
void copy_divided(DataType type, const void* src, void* dst, size_t count, int divisor);

}  // namespace hdt::collectives
