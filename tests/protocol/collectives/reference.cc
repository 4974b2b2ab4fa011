// reference.cc: see reference.h.
#include "tests/protocol/collectives/reference.h"

#include <algorithm>
#include <cstring>

#include "tests/unit/collectives/narrow_floats.h"

namespace hdt::collectives::testing {
namespace {

template <typename T>
void put_as(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

void put(DataType type, int64_t value, std::byte* at) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return put_as(static_cast<uint8_t>(value), at);
    case DataType::kInt16:
    case DataType::kUint16:
      return put_as(static_cast<uint16_t>(value), at);
    case DataType::kInt32:
    case DataType::kUint32:
      return put_as(static_cast<uint32_t>(value), at);
    case DataType::kInt64:
    case DataType::kUint64:
      return put_as(value, at);
    case DataType::kFloat32:
      return put_as(static_cast<float>(value), at);
    case DataType::kFloat64:
      return put_as(static_cast<double>(value), at);
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return put_as(nearest(*narrow_float(type), static_cast<double>(value)), at);
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      return put_as(static_cast<uint8_t>(nearest(*narrow_float(type), static_cast<double>(value))), at);
  }
}

int64_t contribution(DataType type, ReduceOp op, int node, uint64_t element, uint64_t seed) {
  uint64_t mixed = (seed + static_cast<uint64_t>(node) * 1000003 + element) * 0x9E3779B97F4A7C15u;
  mixed ^= mixed >> 29;
  const bool bytes = type_size(type) == 1;
  const bool is_signed = type != DataType::kUint16 && type != DataType::kUint32 && type != DataType::kUint64;
  switch (op) {
    case ReduceOp::kProd:
      return mixed % 2 == 0 ? 1 : -1;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return bytes ? static_cast<int64_t>(mixed % 8)
                   : static_cast<int64_t>(mixed % 200) - (is_signed ? 100 : 0);
    default:
      return static_cast<int64_t>(mixed % (bytes ? 2 : 4));
  }
}

int64_t combined(DataType type, ReduceOp op, int nodes, uint64_t element, uint64_t seed) {
  int64_t result = contribution(type, op, 0, element, seed);
  for (int node = 1; node < nodes; ++node) {
    const int64_t next = contribution(type, op, node, element, seed);
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
      case ReduceOp::kBand:
        result &= next;
        break;
      case ReduceOp::kBor:
        result |= next;
        break;
      case ReduceOp::kBxor:
        result ^= next;
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
