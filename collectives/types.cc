// types.cc: the names of types, reductions and collectives, in both directions. The arrays are in the
// order of the enums' values.
#include "collectives/types.h"

#include <array>

namespace hdt::collectives {
namespace {

constexpr std::array<const char*, kDataTypeCount> kTypeNames = {
    "int32", "int64", "float16", "bfloat16", "float32", "float64",     "int8",
    "uint8", "int16", "uint16",  "uint32",   "uint64",  "float8_e4m3", "float8_e5m2"};
constexpr std::array<const char*, kReduceOpCount> kOpNames = {"sum",        "prod", "min", "max", "avg",
                                                              "premul_sum", "band", "bor", "bxor"};
constexpr std::array<const char*, kCollectiveCount> kCollectiveNames = {
    "allreduce", "reduce", "reduce_scatter", "allgather", "broadcast", "barrier"};

// The value with this name; nothing if there is none.
template <typename Enum, size_t kCount>
std::optional<Enum> find(const std::array<const char*, kCount>& names, std::string_view name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// The name of a value that may be none of ours.
template <typename Enum, size_t kCount>
const char* name_in(const std::array<const char*, kCount>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kCount ? names[index] : "unknown";
}

}  // namespace

const char* name_of(DataType type) { return name_in(kTypeNames, type); }
const char* name_of(ReduceOp op) { return name_in(kOpNames, op); }
const char* name_of(Collective what) { return name_in(kCollectiveNames, what); }

std::optional<DataType> parse_data_type(std::string_view name) {
  if (name == "half") return DataType::kFloat16;
  if (name == "float") return DataType::kFloat32;
  if (name == "double") return DataType::kFloat64;
  return find<DataType>(kTypeNames, name);
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) { return find<ReduceOp>(kOpNames, name); }

std::optional<Collective> parse_collective(std::string_view name) {
  return find<Collective>(kCollectiveNames, name);
}

}  // namespace hdt::collectives
