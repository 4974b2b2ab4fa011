#include "tests/integration/communicator/elements.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace hdt::testing {

namespace {

constexpr double kValues[] = {-2, -1, 1, 2, 3};

template <typename T>
void put(double value, std::byte* to) {
  const T element = static_cast<T>(value);
  std::memcpy(to, &element, sizeof element);
}

template <typename T>
double get(const std::byte* from) {
  T element;
  std::memcpy(&element, from, sizeof element);
  return static_cast<double>(element);
}

// IEEE 754 binary16 of a normal number with at most 11 significant bits.
uint16_t half_of(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  const auto significand = static_cast<uint16_t>(std::ldexp(fraction, 11));
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | (significand & 0x3ff));
}

double value_of_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int significand = exponent == 0 ? bits & 0x3ff : (bits & 0x3ff) | 0x400;
  return std::ldexp(significand, std::max(exponent, 1) - 25) * ((bits & 0x8000) != 0 ? -1 : 1);
}

}  // namespace

void store(hdtDataType_t type, double value, std::byte* to) {
  switch (type) {
    case HDT_INT32:
      return put<int32_t>(value, to);
    case HDT_INT64:
      return put<int64_t>(value, to);
    case HDT_FLOAT32:
      return put<float>(value, to);
    case HDT_FLOAT64:
      return put<double>(value, to);
    case HDT_FLOAT16: {
      const uint16_t bits = half_of(value);
      std::memcpy(to, &bits, sizeof bits);
      return;
    }
    case HDT_BFLOAT16: {
      const auto single = static_cast<float>(value);
      uint32_t bits = 0;
      std::memcpy(&bits, &single, sizeof bits);
      const auto upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(to, &upper, sizeof upper);
      return;
    }
  }
}

double load(hdtDataType_t type, const std::byte* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  switch (type) {
    case HDT_INT32:
      return get<int32_t>(from);
    case HDT_INT64:
      return get<int64_t>(from);
    case HDT_FLOAT32:
      return get<float>(from);
    case HDT_FLOAT64:
      return get<double>(from);
    case HDT_FLOAT16:
      return value_of_half(bits);
    case HDT_BFLOAT16: {
      const uint32_t wide = static_cast<uint32_t>(bits) << 16;
      float single = 0;
      std::memcpy(&single, &wide, sizeof single);
      return single;
    }
  }
  return NAN;
}

double precision(hdtDataType_t type) {
  switch (type) {
    case HDT_FLOAT16:
      return 0x1p-11;
    case HDT_BFLOAT16:
      return 0x1p-8;
    case HDT_FLOAT32:
      return 0x1p-24;
    case HDT_FLOAT64:
      return 0x1p-53;
    default:
      return 0;
  }
}

double contribution(const Example& example, int rank, size_t index) {
  const uint64_t mixed =
      (index * 2654435761U + static_cast<uint64_t>(rank) * 40503U + example.salt * 97U) >> 3;
  return kValues[mixed % std::size(kValues)];
}

double expected(const Example& example, int ranks, int rank, size_t index) {
  if (example.operation == Operation::kBroadcast) return contribution(example, example.root, index);
  if (example.operation == Operation::kAllGather) {
    return contribution(example, static_cast<int>(index / example.count), index % example.count);
  }
  const size_t at = example.operation == Operation::kReduceScatter
                        ? static_cast<size_t>(rank) * example.count + index
                        : index;
  double result = contribution(example, 0, at);
  for (int r = 1; r < ranks; ++r) {
    const double value = contribution(example, r, at);
    switch (example.op) {
      case HDT_PROD:
        result *= value;
        break;
      case HDT_MIN:
        result = std::min(result, value);
        break;
      case HDT_MAX:
        result = std::max(result, value);
        break;
      default:
        result += value;
        break;
    }
  }
  if (example.op == HDT_AVG) result /= ranks;
  const bool whole = example.type == HDT_INT32 || example.type == HDT_INT64;
  return whole ? std::trunc(result) : result;
}

std::string Example::name() const {
  constexpr const char* kOperations[] = {"allreduce", "reduce", "reduce_scatter", "allgather", "broadcast"};
  constexpr const char* kTypes[] = {"int32", "int64", "fp16", "bf16", "fp32", "fp64"};
  constexpr const char* kReductions[] = {"sum", "prod", "min", "max", "avg"};
  return std::string(kOperations[static_cast<int>(operation)]) + " " + kTypes[type] + " " + kReductions[op] +
         (in_place ? " in place" : "") + " of " + std::to_string(count) + ", root " + std::to_string(root);
}

}  // namespace hdt::testing
