// scalar_reference.h: the arithmetic of kernels.h, one element at a time in plain C++, to compare the kernels
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.h"

namespace hdt::collectives::testing {

double float16_value(uint16_t bits);   // exact
double bfloat16_value(uint16_t bits);  // exact
// The nearest representable value, ties to even, overflow to infinity; found by search, not by bit tricks.
uint16_t nearest_float16(double value);
uint16_t nearest_bfloat16(double value);

// As reduce() and copy_divided() for one element, from and to memory that need not be aligned.
void reduce_element(DataType type, ReduceOp op, std::span<const void* const> sources, void* to);
void divide_element(DataType type, const void* from, void* to, int divisor);

// Equal bits, or both NaN.
bool same_element(DataType type, const void* a, const void* b);

}  // namespace hdt::collectives::testing
