// narrow_floats.cc: see narrow_floats.h.
#include "tests/unit/collectives/narrow_floats.h"

#include <cmath>
#include <limits>

namespace hdt::collectives::testing {
namespace {

uint16_t sign_bit(const NarrowFloat& format) { return static_cast<uint16_t>(1u << (format.bits - 1)); }
uint16_t all_ones(const NarrowFloat& format) { return static_cast<uint16_t>(sign_bit(format) - 1); }
uint16_t infinity(const NarrowFloat& format) {
  return static_cast<uint16_t>(all_ones(format) >> format.fraction << format.fraction);
}
uint16_t largest(const NarrowFloat& format) {
  return static_cast<uint16_t>((format.has_infinity ? infinity(format) : all_ones(format)) - 1);
}

// The value of a magnitude, as if exponents went on for ever: no infinity, no NaN.
double magnitude_of(const NarrowFloat& format, int bits) {
  const int bias = (1 << (format.bits - 2 - format.fraction)) - 1;
  const int exponent = bits >> format.fraction;
  const double significand = bits & ((1 << format.fraction) - 1);
  if (exponent == 0) return std::ldexp(significand, 1 - bias - format.fraction);
  return std::ldexp(significand + (1 << format.fraction), exponent - bias - format.fraction);
}

}  // namespace

std::optional<NarrowFloat> narrow_float(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return NarrowFloat{16, 10, true, false};
    case DataType::kBFloat16:
      return NarrowFloat{16, 7, true, false};
    case DataType::kFloat8E4M3:
      return NarrowFloat{8, 3, false, true};
    case DataType::kFloat8E5M2:
      return NarrowFloat{8, 2, true, true};
    default:
      return std::nullopt;
  }
}

double value_of(const NarrowFloat& format, uint16_t bits) {
  const uint16_t magnitude = bits & all_ones(format);
  const double sign = (bits & sign_bit(format)) != 0 ? -1 : 1;
  if (magnitude <= largest(format)) return sign * magnitude_of(format, magnitude);
  if (format.has_infinity && magnitude == infinity(format))
    return sign * std::numeric_limits<double>::infinity();
  return std::nan("");
}

uint16_t nearest(const NarrowFloat& format, double value) {
  if (std::isnan(value)) return all_ones(format);
  const uint16_t sign = std::signbit(value) ? sign_bit(format) : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | (format.has_infinity ? infinity(format) : largest(format));
  // Magnitudes grow with their bits: the last that is not above.
  int low = 0;
  for (int step = 1 << (format.bits - 2); step > 0; step /= 2) {
    if (low + step <= largest(format) && magnitude_of(format, low + step) <= magnitude) low += step;
  }
  const double below = magnitude_of(format, low);
  const double gap = magnitude_of(format, low + 1) - below;
  const double over = magnitude - below;
  const bool up = over > gap / 2 || (over == gap / 2 && low % 2 == 1);
  if (up && low == largest(format) && format.saturates) return sign | largest(format);
  return static_cast<uint16_t>(sign | (low + (up ? 1 : 0)));
}

}  // namespace hdt::collectives::testing
