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
// Elements that are computed at a time: in memory that stays in the caches, and that is not given back to the
// system each time.
constexpr size_t kBlock = 4096;

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

// Searching and scaling for every element would take most of the test's time: every number of a narrow format
// is decoded once, and encoded by looking it up.
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

// Elements of that many bytes; the lower byte of the bits comes first.
template <typename Element>
void encode(const NarrowTable& table, const std::vector<double>& values, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<Element>(table.bits_of(values[i]));
    std::memcpy(to + i * sizeof element, &element, sizeof element);
  }
}
template <typename Element>
void decode(const NarrowTable& table, const std::byte* from, std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    Element element;
    std::memcpy(&element, from + i * sizeof element, sizeof element);
    values[i] = table.values[element];
  }
}

void store(hdtDataType_t type, const std::vector<double>& values, std::byte* to) {
  if (const NarrowTable* table = narrow_table(type)) {
    return hdtTypeSize(type) == 1 ? encode<uint8_t>(*table, values, to)
                                  : encode<uint16_t>(*table, values, to);
  }
  with_type(type, [&](auto element) {
    for (size_t i = 0; i < values.size(); ++i) {
      element = static_cast<decltype(element)>(values[i]);
      std::memcpy(to + i * sizeof element, &element, sizeof element);
    }
  });
}

std::vector<double> load(hdtDataType_t type, const std::byte* from, size_t count) {
  std::vector<double> values(count);
  if (const NarrowTable* table = narrow_table(type)) {
    if (hdtTypeSize(type) == 1) {
      decode<uint8_t>(*table, from, values);
    } else {
      decode<uint16_t>(*table, from, values);
    }
    return values;
  }
  with_type(type, [&](auto element) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&element, from + i * sizeof element, sizeof element);
      values[i] = static_cast<double>(element);
    }
  });
  return values;
}

// Calls f for the values that `rank` contributes at first, first + 1, ...: f(number of the element, value).
template <typename F>
void for_contributions(const Example& example, int rank, size_t first, size_t count, F f) {
  double values[std::size(kValues)];
  for (size_t k = 0; k < std::size(kValues); ++k) {
    values[k] =
        hdtTypeSize(example.type) == 1 ? std::copysign(1, kValues[k]) : kValues[k];  // so that results fit
    if (is_unsigned(example.type)) values[k] = std::abs(values[k]);
  }
  const uint64_t own = static_cast<uint64_t>(rank) * 40503U + example.salt * 97U;
  for (size_t i = 0; i < count; ++i)
    f(i, values[(((first + i) * 2654435761U + own) >> 3) % std::size(kValues)]);
}

// Combines what all ranks contribute at first, first + 1, ...
std::vector<double> reduced(const Example& example, int ranks, size_t first, size_t count) {
  std::vector<double> result(count);
  for_contributions(example, 0, first, count, [&](size_t i, double value) { result[i] = value; });
  for (int rank = 1; rank < ranks; ++rank) {
    const auto combine = [&](auto op) {
      for_contributions(example, rank, first, count,
                        [&](size_t i, double value) { result[i] = op(result[i], value); });
    };
    switch (example.op) {
      case HDT_PROD:
        combine([](double a, double b) { return a * b; });
        break;
      case HDT_MIN:
        combine([](double a, double b) { return std::min(a, b); });
        break;
      case HDT_MAX:
        combine([](double a, double b) { return std::max(a, b); });
        break;
      case HDT_BAND:
        combine([](double a, double b) { return double(int64_t(a) & int64_t(b)); });
        break;
      case HDT_BOR:
        combine([](double a, double b) { return double(int64_t(a) | int64_t(b)); });
        break;
      case HDT_BXOR:
        combine([](double a, double b) { return double(int64_t(a) ^ int64_t(b)); });
        break;
      default:
        combine([](double a, double b) { return a + b; });
        break;
    }
  }
  const bool truncates = !is_float(example.type);
  for (double& value : result) {
    if (example.op == HDT_AVG) value /= ranks;
    if (truncates) value = std::trunc(value);
  }
  return result;
}

// The values that recvbuf of `rank` must hold at first, first + 1, ...
std::vector<double> expected(const Example& example, int ranks, int rank, size_t first, size_t count) {
  if (example.reduces()) {
    const bool scatters = example.operation == Operation::kReduceScatter;
    return reduced(example, ranks, first + (scatters ? static_cast<size_t>(rank) * example.count : 0), count);
  }
  std::vector<double> all(count);
  const bool gathers = example.operation == Operation::kAllGather;
  for (size_t done = 0; done < count;) {
    const size_t at = (first + done) % example.count;  // of whom it comes from
    const int from = gathers ? static_cast<int>((first + done) / example.count) : example.root;
    const size_t here = std::min(count - done, example.count - at);
    for_contributions(example, from, at, here, [&](size_t i, double value) { all[done + i] = value; });
    done += here;
  }
  return all;
}

}  // namespace

bool can_reduce(hdtDataType_t type, hdtRedOp_t op) { return op < HDT_BAND || !is_float(type); }

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

std::string Example::name() const {
  constexpr const char* kOperations[] = {"allreduce", "reduce", "reduce_scatter", "allgather", "broadcast"};
  constexpr const char* kTypes[] = {"int32", "int64", "fp16",   "bf16",   "fp32",   "fp64",    "int8",
                                    "uint8", "int16", "uint16", "uint32", "uint64", "fp8e4m3", "fp8e5m2"};
  constexpr const char* kReductions[] = {"sum", "prod", "min", "max", "avg", "", "band", "bor", "bxor"};
  return std::string(kOperations[static_cast<int>(operation)]) + " " + kTypes[type] + " " + kReductions[op] +
         (in_place ? " in place" : "") + " of " + std::to_string(count) + ", root " + std::to_string(root);
}

KeptBytes contributions(const Example& example, int rank, int ranks) {
  const size_t total = example.send_count(ranks), width = hdtTypeSize(example.type);
  KeptBytes all(total * width);
  for (size_t first = 0; first < total; first += kBlock) {
    std::vector<double> values(std::min(kBlock, total - first));
    for_contributions(example, rank, first, values.size(),
                      [&](size_t i, double value) { values[i] = value; });
    store(example.type, values, all.data() + first * width);
  }
  return all;
}

Difference compare(const Example& example, int ranks, int rank, std::span<const std::byte> received,
                   double relative) {
  const size_t width = hdtTypeSize(example.type), total = received.size() / width;
  Difference found;
  for (size_t first = 0; first < total; first += kBlock) {
    const size_t count = std::min(kBlock, total - first);
    const std::vector<double> want = expected(example, ranks, rank, first, count);
    const std::vector<double> got = load(example.type, received.data() + first * width, count);
    for (size_t i = 0; i < count; ++i) {
      if (std::abs(got[i] - want[i]) <= relative * std::abs(want[i])) continue;
      if (found.wrong++ == 0) found = {1, first + i, want[i], got[i]};
    }
  }
  return found;
}

}  // namespace hdt::testing
