// element.h: elements of every type as doubles and back, for the reference result. Its own code, not the
// library's kernels: a benchmark that verified with what it measures would find nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hdt/hdt.h"

namespace hdt::bench {

// Floating types only. store_float rounds to nearest even; too large a number becomes infinite, or NaN in fp8
// E4M3.
void store_float(hdtDataType_t type, double value, void* element);
double load_float(hdtDataType_t type, const void* element);

// Integer types only, modulo 2^64: stored cut to their width, loaded with their sign where they have one.
void store_integer(hdtDataType_t type, uint64_t value, void* element);
uint64_t load_integer(hdtDataType_t type, const void* element);

bool is_integer(hdtDataType_t type);
bool is_unsigned(hdtDataType_t type);

// Bits of the significand with the hidden one: every whole number below 2^bits is exact.
int significand_bits(hdtDataType_t type);

}  // namespace hdt::bench
