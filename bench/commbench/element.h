// element.h: converts elements of every type to doubles and back, for the reference result. It shares no
// code with the library's kernels: a benchmark that verified with what it measures would find nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hdt/hdt.h"

namespace hdt::bench {

// Floating types only. store_float() rounds to nearest even; a number that is too large becomes
// infinite, or NaN in fp8 E4M3, which has no infinity.
void store_float(hdtDataType_t type, double value, void* element);
double load_float(hdtDataType_t type, const void* element);

// Integer types only, modulo 2^64. They are stored cut to their width, and loaded with their sign if
// they have one.
void store_integer(hdtDataType_t type, uint64_t value, void* element);
uint64_t load_integer(hdtDataType_t type, const void* element);

// False for floating types, which are all others.
bool is_integer(hdtDataType_t type);
bool is_unsigned(hdtDataType_t type);

// Bits of the significand, the hidden one included: every whole number below 2^bits is exact. For
// integers the bits of the value without the sign.
int significand_bits(hdtDataType_t type);

}  // namespace hdt::bench
