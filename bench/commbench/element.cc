// element.cc: conversions between element types and double. The 16-bit formats are rounded arithmetically
// with ldexp and nearbyint: slow, obviously right, and used for one period of the pattern only.
#include "bench/commbench/element.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace hdt::bench {
namespace {

struct Format {
  int significand;  // stored bits
  int exponent;     // bits
};

constexpr Format format_of(hdtDataType_t type) { return type == HDT_FLOAT16 ? Format{10, 5} : Format{7, 8}; }

uint16_t encode16(Format format, double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int bias = (1 << (format.exponent - 1)) - 1;
  const auto infinity = static_cast<uint16_t>(((1 << format.exponent) - 1) << format.significand);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1u << (format.significand - 1));
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  int exponent = magnitude == 0 ? 1 - bias : std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;  // subnormal
  const auto steps =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, format.significand - exponent)));
  // A carry out of the significand runs into the exponent, which is the right result, up to infinity.
  const uint32_t bits = (static_cast<uint32_t>(exponent + bias - 1) << format.significand) + steps;
  return static_cast<uint16_t>(sign | (bits < infinity ? bits : infinity));
}

double decode16(Format format, uint16_t bits) {
  const int bias = (1 << (format.exponent - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> format.significand;
  const int steps = bits & ((1 << format.significand) - 1);
  double magnitude;
  if (exponent == (1 << format.exponent) - 1) {
    magnitude =
        steps == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(steps, 1 - bias - format.significand);
  } else {
    magnitude = std::ldexp(steps + (1 << format.significand), exponent - bias - format.significand);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <typename T>
T load(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

template <typename T>
void store(T value, void* element) {
  std::memcpy(element, &value, sizeof value);
}

}  // namespace

void store_float(hdtDataType_t type, double value, void* element) {
  if (type == HDT_FLOAT64) {
    store(value, element);
  } else if (type == HDT_FLOAT32) {
    store(static_cast<float>(value), element);
  } else {
    store(encode16(format_of(type), value), element);
  }
}

double load_float(hdtDataType_t type, const void* element) {
  if (type == HDT_FLOAT64) return load<double>(element);
  if (type == HDT_FLOAT32) return load<float>(element);
  return decode16(format_of(type), load<uint16_t>(element));
}

void store_integer(hdtDataType_t type, uint64_t value, void* element) {
  if (type == HDT_INT32) {
    store(static_cast<uint32_t>(value), element);
  } else {
    store(value, element);
  }
}

int64_t load_integer(hdtDataType_t type, const void* element) {
  return type == HDT_INT32 ? load<int32_t>(element) : load<int64_t>(element);
}

bool is_integer(hdtDataType_t type) { return type == HDT_INT32 || type == HDT_INT64; }

int significand_bits(hdtDataType_t type) {
  switch (type) {
    case HDT_BFLOAT16:
      return 8;
    case HDT_FLOAT16:
      return 11;
    case HDT_FLOAT32:
      return 24;
    case HDT_FLOAT64:
      return 53;
    case HDT_INT32:
      return 31;
    case HDT_INT64:
      return 63;
    default:  // not one of names.h
      return 0;
  }
}

}  // namespace hdt::bench
