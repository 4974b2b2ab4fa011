// saturate.h: arithmetic with numbers of others. What would overflow becomes the largest or smallest value: a
// time or a size that makes no sense is just very long or very large.
#pragma once

#include <cstdint>
#include <limits>

namespace hdt {

inline int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

inline int64_t saturating_sub(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

inline uint64_t saturating_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

// The nearest integer that there is; 0 for what is no number.
inline int64_t saturating_int64(double value) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (value != value) return 0;
  if (value >= kEnd) return std::numeric_limits<int64_t>::max();
  if (value < -kEnd) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

}  // namespace hdt
