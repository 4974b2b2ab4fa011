// narrow_floats.h: the float formats below binary32, one number at a time, by arithmetic and search instead
// of bit tricks: what the kernels and the tests of whole operations are compared with.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/types.h"

namespace hdt::collectives::testing {

struct NarrowFloat {
  int bits;
  int fraction;       // bits of the fraction; the rest but the sign are the exponent's
  bool has_infinity;  // else all ones are the only NaN, and the numbers go on below it
  bool saturates;     // finite numbers beyond the largest become the largest, not infinite
};

// Nothing if `type` is no such format.
std::optional<NarrowFloat> narrow_float(DataType type);

double value_of(const NarrowFloat& format, uint16_t bits);  // exact
// The nearest representable number, ties to even.
uint16_t nearest(const NarrowFloat& format, double value);

}  // namespace hdt::collectives::testing
