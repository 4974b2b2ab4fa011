// scalar_reference.cc: see scalar_reference.h.
#include "tests/unit/collectives/scalar_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace hdt::collectives::testing {
namespace {

template <typename T>
T get(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
void set(T value, void* to) {
  std::memcpy(to, &value, sizeof(T));
}

// Value of a format with `fraction` fraction bits and 15 - fraction exponent bits, below its sign bit.
double narrow_value(uint16_t bits, int fraction) {
  const int exponent_bits = 15 - fraction;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7FFF) >> fraction;
  const double significand = bits & ((1 << fraction) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return significand == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(significand, 1 - bias - fraction);
  return sign * std::ldexp(significand + (1 << fraction), exponent - bias - fraction);
}

uint16_t nearest_narrow(double value, int fraction) {
  const uint16_t infinity = static_cast<uint16_t>(((1 << (15 - fraction)) - 1) << fraction);
  if (std::isnan(value)) return infinity + 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  // Magnitudes grow with their bits: the last that is not above.
  uint16_t low = 0;
  for (uint16_t step = 0x4000; step > 0; step /= 2) {
    if (low + step < infinity && narrow_value(low + step, fraction) <= magnitude) low += step;
  }
  // Infinity stands where the next number would be if exponents went on.
  const double below = narrow_value(low, fraction);
  const double gap =
      low + 1 < infinity ? narrow_value(low + 1, fraction) - below : below - narrow_value(low - 1, fraction);
  const double over = magnitude - below;
  const bool up = over > gap / 2 || (over == gap / 2 && low % 2 == 1);
  return sign | static_cast<uint16_t>(low + up);
}

template <typename T>
T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}
template <typename T>
T combine_wrapping(ReduceOp op, T a, T b) {  // through unsigned: overflow of signed numbers is undefined
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) return combine(op, a, b);
  using U = std::make_unsigned_t<T>;
  return static_cast<T>(combine(op, static_cast<U>(a), static_cast<U>(b)));
}

template <typename T, typename Combine>
T over_all(std::span<const void* const> sources, Combine combine_two) {
  T value = get<T>(sources[0]);
  for (size_t k = 1; k < sources.size(); ++k) value = combine_two(value, get<T>(sources[k]));
  return value;
}

// In fp32, rounded by the narrow type once at the end.
float over_all_narrow(ReduceOp op, std::span<const void* const> sources, double (*value_of)(uint16_t)) {
  auto value = static_cast<float>(value_of(get<uint16_t>(sources[0])));
  for (size_t k = 1; k < sources.size(); ++k) {
    value = combine(op, value, static_cast<float>(value_of(get<uint16_t>(sources[k]))));
  }
  return value;
}

}  // namespace

double float16_value(uint16_t bits) { return narrow_value(bits, 10); }
double bfloat16_value(uint16_t bits) { return narrow_value(bits, 7); }
uint16_t nearest_float16(double value) { return nearest_narrow(value, 10); }
uint16_t nearest_bfloat16(double value) { return nearest_narrow(value, 7); }

void reduce_element(DataType type, ReduceOp op, std::span<const void* const> sources, void* to) {
  const auto wrapping = [op](auto a, auto b) { return combine_wrapping(op, a, b); };
  const auto floating = [op](auto a, auto b) { return combine(op, a, b); };
  switch (type) {
    case DataType::kInt32:
      return set(over_all<int32_t>(sources, wrapping), to);
    case DataType::kInt64:
      return set(over_all<int64_t>(sources, wrapping), to);
    case DataType::kFloat16:
      return set(nearest_float16(over_all_narrow(op, sources, float16_value)), to);
    case DataType::kBFloat16:
      return set(nearest_bfloat16(over_all_narrow(op, sources, bfloat16_value)), to);
    case DataType::kFloat32:
      return set(over_all<float>(sources, floating), to);
    case DataType::kFloat64:
      return set(over_all<double>(sources, floating), to);
  }
}

void divide_element(DataType type, const void* from, void* to, int divisor) {
  const auto by = static_cast<float>(divisor);
  switch (type) {
    case DataType::kInt32:
      return set(get<int32_t>(from) / divisor, to);
    case DataType::kInt64:
      return set(get<int64_t>(from) / divisor, to);
    case DataType::kFloat16:
      return set(nearest_float16(static_cast<float>(float16_value(get<uint16_t>(from))) / by), to);
    case DataType::kBFloat16:
      return set(nearest_bfloat16(static_cast<float>(bfloat16_value(get<uint16_t>(from))) / by), to);
    case DataType::kFloat32:
      return set(get<float>(from) / by, to);
    case DataType::kFloat64:
      return set(get<double>(from) / divisor, to);
  }
}

bool same_element(DataType type, const void* a, const void* b) {
  if (std::memcmp(a, b, type_size(type)) == 0) return true;
  switch (type) {
    case DataType::kFloat16:
      return std::isnan(float16_value(get<uint16_t>(a))) && std::isnan(float16_value(get<uint16_t>(b)));
    case DataType::kBFloat16:
      return std::isnan(bfloat16_value(get<uint16_t>(a))) && std::isnan(bfloat16_value(get<uint16_t>(b)));
    case DataType::kFloat32:
      return std::isnan(get<float>(a)) && std::isnan(get<float>(b));
    case DataType::kFloat64:
      return std::isnan(get<double>(a)) && std::isnan(get<double>(b));
    default:
      return false;
  }
}

}  // namespace hdt::collectives::testing
