// scalar_reference.h: the arithmetic of kernels.h, one element at a time in plain C++, to compare the kernels
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.h"

namespace hdt::collectives::testing {

// As reduce(), copy_divided() and scale() for one element, from and to memory that need not be aligned.
void reduce_element(DataType type, ReduceOp op, std::span<const void* const> sources, void* to);
void divide_element(DataType type, const void* from, void* to, int divisor);

void scale_element(DataType type, const void* scalar, const void* from, void* to);

bool is_nan(DataType type, const void* at);
// Equal bits, or both NaN.
bool same_element(DataType type, const void* a, const void* b);

}  // namespace hdt::collectives::testing
