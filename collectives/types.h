// types.h: element types, reductions and collectives, as the layers below the public header name them. The
// values are those of hdt.h (libclient checks it), and they travel in descriptors and frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hdt::collectives {

// Element types. float8 is OCP's 8-bit floating point, in its two forms.
enum class DataType : uint8_t {
  kInt32 = 0,
  kInt64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
  kInt8 = 6,
  kUint8 = 7,
  kInt16 = 8,
  kUint16 = 9,
  kUint32 = 10,
  kUint64 = 11,
  kFloat8E4M3 = 12,
  kFloat8E5M2 = 13
};
inline constexpr int kDataTypeCount = 14;

// kAvg: a sum, divided by the number of ranks where the result is taken. kPreMulSum: each rank
// multiplies its contribution by a number of its own first. kBand, kBor, kBxor: bit by bit.
enum class ReduceOp : uint8_t {
  kSum = 0,
  kProd = 1,
  kMin = 2,
  kMax = 3,
  kAvg = 4,
  kPreMulSum = 5,
  kBand = 6,
  kBor = 7,
  kBxor = 8
};
inline constexpr int kReduceOpCount = 9;

enum class Collective : uint8_t {
  kAllReduce = 0,
  kReduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kBroadcast = 4,
  kBarrier = 5
};
inline constexpr int kCollectiveCount = 6;

// False for numbers from elsewhere that are none of ours. Code that takes a call from another process
// checks this before anything else.
constexpr bool is_known(DataType type) { return static_cast<uint8_t>(type) < kDataTypeCount; }
constexpr bool is_known(ReduceOp op) { return static_cast<uint8_t>(op) < kReduceOpCount; }
constexpr bool is_known(Collective what) { return static_cast<uint8_t>(what) < kCollectiveCount; }

// Bytes of an element. For an unknown type 1, so that nothing is read out of bounds nor divided by 0 on
// the way to the refusal.
constexpr size_t type_size(DataType type) {
  constexpr size_t kSizes[kDataTypeCount] = {4, 8, 2, 2, 4, 8, 1, 1, 2, 2, 4, 8, 1, 1};
  return is_known(type) ? kSizes[static_cast<size_t>(type)] : 1;
}

constexpr bool is_integer(DataType type) {
  return type != DataType::kFloat16 && type != DataType::kBFloat16 && type != DataType::kFloat32 &&
         type != DataType::kFloat64 && type != DataType::kFloat8E4M3 && type != DataType::kFloat8E5M2;
}
constexpr bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
}
// False for bitwise reductions of floating-point numbers, which no call may ask for. Both are known.
constexpr bool can_reduce(DataType type, ReduceOp op) { return is_integer(type) || !is_bitwise(op); }

// True if the collective combines contributions. It then has a ReduceOp and reads kInput (schedule.h).
constexpr bool reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduce || c == Collective::kReduceScatter;
}

// Names for people and for flags. "unknown" for numbers that are none of ours.
const char* name_of(DataType type);    // "float32": the names hdt-commbench prints and accepts
const char* name_of(ReduceOp op);      // "sum"
const char* name_of(Collective what);  // "allreduce"

// The inverse of name_of(). Types also by the names that nccl-tests uses ("half", "float", "double").
// Nothing if unknown.
std::optional<DataType> parse_data_type(std::string_view name);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);
std::optional<Collective> parse_collective(std::string_view name);

}  // namespace hdt::collectives
