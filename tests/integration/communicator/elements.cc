#include "tests/integration/communicator/elements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/unit/collectives/narrow_floats.h"

namespace hdt::testing {

namespace {

using collectives::testing::NarrowFloat;

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

// Calls body(T()) with the C++ type of a type that has one.
template <typename Body>
void with_type(hdtDataType_t type, Body body) {
  switch (type) {
    case HDT_INT8:
      return body(int8_t());
    case HDT_UINT8:
      return body(uint8_t());
    case HDT_INT16:
      return body(int16_t());
    case HDT_UINT16:
      return body(uint16_t());
    case HDT_INT32:
      return body(int32_t());
    case HDT_UINT32:
      return body(uint32_t());
    case HDT_INT64:
      return body(int64_t());
    case HDT_UINT64:
      return body(uint64_t());
    case HDT_FLOAT32:
      return body(float());
    case HDT_FLOAT64:
      return body(double());
    default:
      FAIL() << "type " << type << " has no C++ type";
  }
}

std::optional<NarrowFloat> narrow(hdtDataType_t type) {
  return collectives::testing::narrow_float(static_cast<collectives::DataType>(type));
}

bool is_float(hdtDataType_t type) { return narrow(type) || type == HDT_FLOAT32 || type == HDT_FLOAT64; }
bool is_unsigned(hdtDataType_t type) {
  return type == HDT_UINT8 || type == HDT_UINT16 || type == HDT_UINT32 || type == HDT_UINT64;
}

// Searching and scaling for every element would take most of the test's time: every number of a narrow format is decoded
// once, and encoded by looking it up.
struct NarrowTable {
  explicit NarrowTable(const NarrowFloat& format) : values(size_t{1} << format.bits) {
    for (size_t bits = 0; bits < values.size(); ++bits) {
      values[bits] = collectives::testing::value_of(format, static_cast<uint16_t>(bits));
    }
    for (int whole = -kWholes; whole <= kWholes; ++whole) {
      wholes[static_cast<size_t>(whole + kWholes)] = collectives::testing::nearest(format, whole);
    }
  }
  uint16_t bits_of(double whole) const {
    return wholes.at(static_cast<size_t>(static_cast<int>(whole) + kWholes));
  }

  static constexpr int kWholes = 8;
  std::vector<double> values;
  std::array<uint16_t, 2 * kWholes + 1> wholes{};
};

const NarrowTable* narrow_table(hdtDataType_t type) {
  static const NarrowTable kTables[] = {NarrowTable(*narrow(HDT_FLOAT16)), NarrowTable(*narrow(HDT_BFLOAT16)),
                                        NarrowTable(*narrow(HDT_FLOAT8E4M3)),
                                        NarrowTable(*narrow(HDT_FLOAT8E5M2))};
  switch (type) {
    case HDT_FLOAT16:
      return &kTables[0];
    case HDT_BFLOAT16:
      return &kTables[1];
    case HDT_FLOAT8E4M3:
      return &kTables[2];
    case HDT_FLOAT8E5M2:
      return &kTables[3];
    default:
      return nullptr;
  }
}

}  // namespace

void store(hdtDataType_t type, double value, std::byte* to) {
  if (const NarrowTable* table = narrow_table(type)) {
    const uint16_t bits = table->bits_of(value);
    std::memcpy(to, &bits, hdtTypeSize(type));  // the lower byte comes first
    return;
  }
  with_type(type, [&](auto zero) { put<decltype(zero)>(value, to); });
}

double load(hdtDataType_t type, const std::byte* from) {
  if (const NarrowTable* table = narrow_table(type)) {
    uint16_t bits = 0;
    std::memcpy(&bits, from, hdtTypeSize(type));
    return table->values[bits];
  }
  double value = NAN;
  with_type(type, [&](auto zero) { value = get<decltype(zero)>(from); });
  return value;
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
    case HDT_FLOAT8E4M3:
      return 0x1p-4;
    case HDT_FLOAT8E5M2:
      return 0x1p-3;
    default:
      return 0;
  }
}

double contribution(const Example& example, int rank, size_t index) {
  const uint64_t mixed =
      (index * 2654435761U + static_cast<uint64_t>(rank) * 40503U + example.salt * 97U) >> 3;
  double value = kValues[mixed % std::size(kValues)];
  if (hdtTypeSize(example.type) == 1) value = std::copysign(1, value);  // so that results fit, and are exact
  return is_unsigned(example.type) ? std::abs(value) : value;
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
  return is_float(example.type) ? result : std::trunc(result);
}

std::string Example::name() const {
  constexpr const char* kOperations[] = {"allreduce", "reduce", "reduce_scatter", "allgather", "broadcast"};
  constexpr const char* kTypes[] = {"int32", "int64", "fp16",   "bf16",   "fp32",   "fp64",    "int8",
                                    "uint8", "int16", "uint16", "uint32", "uint64", "fp8e4m3", "fp8e5m2"};
  constexpr const char* kReductions[] = {"sum", "prod", "min", "max", "avg"};
  return std::string(kOperations[static_cast<int>(operation)]) + " " + kTypes[type] + " " + kReductions[op] +
         (in_place ? " in place" : "") + " of " + std::to_string(count) + ", root " + std::to_string(root);
}

std::vector<std::byte> contributions(const Example& example, int rank, int ranks) {
  const size_t width = hdtTypeSize(example.type);
  std::vector<std::byte> all(example.send_count(ranks) * width);
  for (size_t i = 0; i * width < all.size(); ++i)
    store(example.type, contribution(example, rank, i), all.data() + i * width);
  return all;
}

Difference compare(const Example& example, int ranks, int rank, const std::vector<std::byte>& received,
                   double relative) {
  const size_t width = hdtTypeSize(example.type);
  Difference found;
  for (size_t i = 0; i * width < received.size(); ++i) {
    const double want = expected(example, ranks, rank, i);
    const double got = load(example.type, received.data() + i * width);
    if (std::abs(got - want) <= relative * std::abs(want)) continue;
    if (found.wrong++ == 0) found.first = i;
  }
  return found;
}

}  // namespace hdt::testing
