// reference.cc: see reference.h.
#include "tests/protocol/collectives/reference.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace hdt::collectives::testing {
namespace {

template <typename T>
void put_as(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

uint16_t float16_of(int64_t value) {  // |value| < 2048
  if (value == 0) return 0;
  const auto magnitude = static_cast<uint32_t>(std::llabs(value));
  const int exponent = std::bit_width(magnitude) - 1;
  const uint32_t fraction = (magnitude << (10 - exponent)) & 0x3FF;
  return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) | static_cast<uint32_t>(exponent + 15) << 10 |
                               fraction);
}

}  // namespace

void put(DataType type, int64_t value, std::byte* at) {
  switch (type) {
    case DataType::kInt32:
      return put_as(static_cast<int32_t>(value), at);
    case DataType::kInt64:
      return put_as(value, at);
    case DataType::kFloat16:
      return put_as(float16_of(value), at);
    case DataType::kBFloat16:
      return put_as(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16), at);
    case DataType::kFloat32:
      return put_as(static_cast<float>(value), at);
    case DataType::kFloat64:
      return put_as(static_cast<double>(value), at);
  }
}

int64_t contribution(ReduceOp op, int node, uint64_t element, uint64_t seed) {
  uint64_t mixed = (seed + static_cast<uint64_t>(node) * 1000003 + element) * 0x9E3779B97F4A7C15u;
  mixed ^= mixed >> 29;
  switch (op) {
    case ReduceOp::kProd:
      return mixed % 2 == 0 ? 1 : -1;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return static_cast<int64_t>(mixed % 200) - 100;
    default:
      return static_cast<int64_t>(mixed % 4);
  }
}

int64_t combined(ReduceOp op, int nodes, uint64_t element, uint64_t seed) {
  int64_t result = contribution(op, 0, element, seed);
  for (int node = 1; node < nodes; ++node) {
    const int64_t next = contribution(op, node, element, seed);
    switch (op) {
      case ReduceOp::kProd:
        result *= next;
        break;
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      default:
        result += next;
    }
  }
  return result;
}

int owner_of(const Problem& problem, uint64_t element) {
  const auto& offsets = problem.block_offsets;
  return static_cast<int>(std::upper_bound(offsets.begin(), offsets.end(), element) - offsets.begin()) - 1;
}

}  // namespace hdt::collectives::testing
