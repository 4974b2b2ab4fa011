// scalar_reference.cc: see scalar_reference.h.
#include "tests/unit/collectives/scalar_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tests/unit/collectives/narrow_floats.h"

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

template <typename T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kBand) return a & b;
    if (op == ReduceOp::kBor) return a | b;
    if (op == ReduceOp::kBxor) return a ^ b;
  }
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
T combine_wrapping(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<
                    T>) {  // overflow of signed numbers is undefined, also where bytes were promoted
    if (op == ReduceOp::kMin || op == ReduceOp::kMax) return combine(op, a, b);
    return static_cast<T>(combine(op, static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  } else {
    return combine(op, a, b);
  }
}

// Calls body(T()) with the C++ type of `type`; for narrow floats, there is none.
template <typename Body>
void with_type(DataType type, Body body) {
  switch (type) {
    case DataType::kInt8:
      return body(int8_t());
    case DataType::kUint8:
      return body(uint8_t());
    case DataType::kInt16:
      return body(int16_t());
    case DataType::kUint16:
      return body(uint16_t());
    case DataType::kInt32:
      return body(int32_t());
    case DataType::kUint32:
      return body(uint32_t());
    case DataType::kInt64:
      return body(int64_t());
    case DataType::kUint64:
      return body(uint64_t());
    case DataType::kFloat32:
      return body(float());
    case DataType::kFloat64:
      return body(double());
    default:
      FAIL() << name_of(type) << " has no C++ type";
  }
}

float narrow_value(DataType type, const void* from) {
  const uint16_t bits = type_size(type) == 1 ? get<uint8_t>(from) : get<uint16_t>(from);
  return static_cast<float>(value_of(*narrow_float(type), bits));
}
void set_nearest(DataType type, double value, void* to) {
  const uint16_t bits = nearest(*narrow_float(type), value);
  if (type_size(type) == 1) return set(static_cast<uint8_t>(bits), to);
  set(bits, to);
}

}  // namespace

bool is_nan(DataType type, const void* at) {
  if (narrow_float(type)) return std::isnan(narrow_value(type, at));
  if (type == DataType::kFloat32) return std::isnan(get<float>(at));
  return type == DataType::kFloat64 && std::isnan(get<double>(at));
}

void reduce_element(DataType type, ReduceOp op, std::span<const void* const> sources, void* to) {
  if (narrow_float(type)) {  // in fp32, rounded once at the end
    float value = narrow_value(type, sources[0]);
    for (size_t k = 1; k < sources.size(); ++k) value = combine(op, value, narrow_value(type, sources[k]));
    return set_nearest(type, value, to);
  }
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    T value = get<T>(sources[0]);
    for (size_t k = 1; k < sources.size(); ++k) value = combine_wrapping(op, value, get<T>(sources[k]));
    set(value, to);
  });
}

void divide_element(DataType type, const void* from, void* to, int divisor) {
  if (narrow_float(type))
    return set_nearest(type, narrow_value(type, from) / static_cast<float>(divisor), to);
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_unsigned_v<T>) {
      set(static_cast<T>(get<T>(from) / static_cast<uint64_t>(divisor)), to);
    } else {
      set(static_cast<T>(get<T>(from) / static_cast<std::common_type_t<T, int>>(divisor)), to);
    }
  });
}

void scale_element(DataType type, const void* scalar, const void* from, void* to) {
  const void* const factors[] = {from, scalar};
  reduce_element(type, ReduceOp::kProd, factors, to);
}

bool same_element(DataType type, const void* a, const void* b) {
  return std::memcmp(a, b, type_size(type)) == 0 || (is_nan(type, a) && is_nan(type, b));
}

}  // namespace hdt::collectives::testing
