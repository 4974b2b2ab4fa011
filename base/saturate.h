// saturate.h: arithmetic with numbers that others sent. A result that would overflow becomes the largest
// or the smallest value. A time or a size that makes no sense is then just very long or very large, and
// the usual checks against limits refuse it.
#pragma once

#include <cstdint>
#include <limits>

namespace hdt {

// a + b, or the end of the range that it passes. An addition overflows only if both have the same sign,
// so the sign of b tells which end.
inline int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

// a - b, or the end of the range that it passes: the upper one if b is negative.
inline int64_t saturating_sub(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

// a + b, at most the largest uint64_t.
inline uint64_t saturating_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

// `value` without its fraction, or the nearest end of int64_t's range; 0 for NaN. The plain conversion
// would be undefined behaviour outside of the range. The range is compared as doubles: 2^63 is one, 2^63
// - 1 is not.
inline int64_t saturating_int64(double value) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (value != value) return 0;
  if (value >= kEnd) return std::numeric_limits<int64_t>::max();
  if (value < -kEnd) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

}  // namespace hdt
