// element.cc: converts between element types and double. The formats below binary32 are rounded
// arithmetically with ldexp() and nearbyint(). That is slow and obviously right; it is used for one
// period of the pattern only.
#include "bench/commbench/element.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "bench/commbench/names.h"

namespace hdt::bench {
namespace {

// A floating format below binary32. All of them have subnormal numbers. A format without infinity uses
// the largest exponent for numbers too, up to its only NaN, which has all bits set.
struct Format {
  // Stored bits, without the hidden one.
  int significand;
  int exponent;  // bits
  bool infinity = true;
  int bias() const { return (1 << (exponent - 1)) - 1; }
  uint32_t sign() const { return 1u << (significand + exponent); }
  uint32_t not_a_number() const { return sign() - 1; }
  // The smallest magnitude that is no finite number.
  uint32_t first_special() const { return infinity ? ((1u << exponent) - 1) << significand : not_a_number(); }
};

// Nothing for types that are no such format.
std::optional<Format> narrow_format(hdtDataType_t type) {
  switch (type) {
    case HDT_FLOAT16:
      return Format{10, 5};
    case HDT_BFLOAT16:
      return Format{7, 8};
    case HDT_FLOAT8E4M3:
      return Format{3, 4, false};
    case HDT_FLOAT8E5M2:
      return Format{2, 5};
    default:
      return std::nullopt;
  }
}

// The bits of `value`, rounded to nearest even. A magnitude that is too large becomes the first special
// one, which is infinity if there is one.
uint32_t encode(const Format& format, double value) {
  const uint32_t sign = std::signbit(value) ? format.sign() : 0;
  if (std::isnan(value)) return sign | format.not_a_number();
  // The sign is stored apart, so only magnitudes are rounded.
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | format.first_special();
  int exponent = magnitude == 0 ? 1 - format.bias() : std::ilogb(magnitude);
  // Subnormal numbers have the smallest exponent.
  if (exponent < 1 - format.bias()) exponent = 1 - format.bias();
  // The magnitude in units of the last place. nearbyint() rounds to nearest even in the default rounding
  // mode.
  const auto steps =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, format.significand - exponent)));
  // If rounding carries out of the significand, the carry goes into the exponent, which is the right
  // result.
  const uint32_t bits = (static_cast<uint32_t>(exponent + format.bias() - 1) << format.significand) + steps;
  return sign | std::min(bits, format.first_special());
}

// The value of these bits.
double decode(const Format& format, uint32_t bits) {
  const uint32_t magnitude_bits = bits & format.not_a_number();
  const int exponent = static_cast<int>(magnitude_bits >> format.significand);
  const int steps = static_cast<int>(bits & ((1u << format.significand) - 1));
  double magnitude;
  if (magnitude_bits >= format.first_special()) {
    const bool infinite = format.infinity && steps == 0;
    magnitude = infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    // Subnormal: there is no hidden bit.
  } else if (exponent == 0) {
    magnitude = std::ldexp(steps, 1 - format.bias() - format.significand);
  } else {
    magnitude = std::ldexp(steps + (1 << format.significand), exponent - format.bias() - format.significand);
  }
  return (bits & format.sign()) != 0 ? -magnitude : magnitude;
}

// By memcpy: elements in a receive buffer need not be aligned, and have other types.
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

// Copies one, two, four or eight bytes without calling memcpy() for each element.
void copy(void* to, const void* from, size_t bytes) {
  switch (bytes) {
    case 1:
      return store(load<uint8_t>(from), to);
    case 2:
      return store(load<uint16_t>(from), to);
    case 4:
      return store(load<uint32_t>(from), to);
    default:
      return store(load<uint64_t>(from), to);
  }
}

}  // namespace

void store_float(hdtDataType_t type, double value, void* element) {
  if (type == HDT_FLOAT64) return store(value, element);
  if (type == HDT_FLOAT32) return store(static_cast<float>(value), element);
  const uint64_t bits = encode(*narrow_format(type), value);
  copy(element, &bits, element_bytes(type));  // the low bytes come first
}

double load_float(hdtDataType_t type, const void* element) {
  if (type == HDT_FLOAT64) return load<double>(element);
  if (type == HDT_FLOAT32) return load<float>(element);
  uint64_t bits = 0;
  copy(&bits, element, element_bytes(type));
  return decode(*narrow_format(type), static_cast<uint32_t>(bits));
}

// The low bytes come first: an integer is the start of its 64-bit value, whatever its sign.
void store_integer(hdtDataType_t type, uint64_t value, void* element) {
  copy(element, &value, element_bytes(type));
}

uint64_t load_integer(hdtDataType_t type, const void* element) {
  switch (type) {
    case HDT_INT8:
      return static_cast<uint64_t>(load<int8_t>(element));
    case HDT_INT16:
      return static_cast<uint64_t>(load<int16_t>(element));
    case HDT_INT32:
      return static_cast<uint64_t>(load<int32_t>(element));
    default: {
      uint64_t value = 0;
      copy(&value, element, element_bytes(type));
      return value;
    }
  }
}

bool is_integer(hdtDataType_t type) {
  return !narrow_format(type) && type != HDT_FLOAT32 && type != HDT_FLOAT64;
}

bool is_unsigned(hdtDataType_t type) {
  return type == HDT_UINT8 || type == HDT_UINT16 || type == HDT_UINT32 || type == HDT_UINT64;
}

int significand_bits(hdtDataType_t type) {
  if (const auto format = narrow_format(type)) return format->significand + 1;
  if (type == HDT_FLOAT32) return 24;
  if (type == HDT_FLOAT64) return 53;
  return static_cast<int>(8 * element_bytes(type)) - (is_unsigned(type) ? 0 : 1);
}

}  // namespace hdt::bench
