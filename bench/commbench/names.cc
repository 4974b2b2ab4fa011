// names.cc: one table for each sort of name. The tables' order is that in which `all` is measured.
#include "bench/commbench/names.h"

#include <array>

namespace hdt::bench {
namespace {

template <typename T>
struct Name {
  T value;
  const char* name;
  const char* alias;  // as nccl-tests calls it
};

constexpr std::array<Name<Collective>, 10> kCollectives{
    {{Collective::kAllReduce, "allreduce", "all_reduce"},
     {Collective::kReduceScatter, "reduce_scatter", "reducescatter"},
     {Collective::kAllGather, "allgather", "all_gather"},
     {Collective::kBroadcast, "broadcast", "bcast"},
     {Collective::kReduce, "reduce", "reduce"},
     {Collective::kAllToAll, "alltoall", "all_to_all"},
     {Collective::kGather, "gather", "gather"},
     {Collective::kScatter, "scatter", "scatter"},
     {Collective::kSendRecv, "sendrecv", "send_recv"},
     {Collective::kBarrier, "barrier", "barrier"}}};

constexpr std::array<Name<hdtDataType_t>, 14> kTypes{{{HDT_INT32, "int32", "int"},
                                                      {HDT_INT64, "int64", "int64"},
                                                      {HDT_FLOAT16, "float16", "half"},
                                                      {HDT_BFLOAT16, "bfloat16", "bf16"},
                                                      {HDT_FLOAT32, "float32", "float"},
                                                      {HDT_FLOAT64, "float64", "double"},
                                                      {HDT_INT8, "int8", "char"},
                                                      {HDT_UINT8, "uint8", "uint8"},
                                                      {HDT_INT16, "int16", "int16"},
                                                      {HDT_UINT16, "uint16", "uint16"},
                                                      {HDT_UINT32, "uint32", "uint"},
                                                      {HDT_UINT64, "uint64", "uint64"},
                                                      {HDT_FLOAT8E4M3, "float8_e4m3", "f8e4m3"},
                                                      {HDT_FLOAT8E5M2, "float8_e5m2", "f8e5m2"}}};

constexpr std::array<Name<hdtRedOp_t>, 8> kOps{{{HDT_SUM, "sum", "sum"},
                                                {HDT_PROD, "prod", "prod"},
                                                {HDT_MIN, "min", "min"},
                                                {HDT_MAX, "max", "max"},
                                                {HDT_AVG, "avg", "avg"},
                                                {HDT_BAND, "band", "band"},
                                                {HDT_BOR, "bor", "bor"},
                                                {HDT_BXOR, "bxor", "bxor"}}};

constexpr std::array<Name<EngineKind>, 4> kEngines{{{EngineKind::kHdt, "hdt", "hdt"},
                                                    {EngineKind::kGloo, "gloo", "gloo"},
                                                    {EngineKind::kMpi, "mpi", "mpi"},
                                                    {EngineKind::kRaw, "raw", "raw"}}};

// Linear searches: the tables are short, and names are looked up for a row only.
template <typename Table, typename T>
const char* look_up(const Table& table, T value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

template <typename T, size_t N>
std::optional<T> find(const std::array<Name<T>, N>& table, std::string_view name) {
  for (const auto& entry : table) {
    if (name == entry.name || name == entry.alias) return entry.value;
  }
  return std::nullopt;
}

template <typename T, size_t N>
std::vector<T> values(const std::array<Name<T>, N>& table) {
  std::vector<T> all;
  for (const auto& entry : table) all.push_back(entry.value);
  return all;
}

}  // namespace

const char* name_of(Collective what) { return look_up(kCollectives, what); }
const char* name_of(hdtDataType_t type) { return look_up(kTypes, type); }
const char* name_of(hdtRedOp_t op) { return look_up(kOps, op); }
const char* name_of(EngineKind engine) { return look_up(kEngines, engine); }

std::optional<Collective> find_collective(std::string_view name) { return find(kCollectives, name); }
std::optional<hdtDataType_t> find_type(std::string_view name) { return find(kTypes, name); }
std::optional<hdtRedOp_t> find_op(std::string_view name) { return find(kOps, name); }
std::optional<EngineKind> find_engine(std::string_view name) { return find(kEngines, name); }

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> kAll = values(kCollectives);
  return kAll;
}
const std::vector<hdtDataType_t>& all_types() {
  static const std::vector<hdtDataType_t> kAll = values(kTypes);
  return kAll;
}
const std::vector<hdtRedOp_t>& all_ops() {
  static const std::vector<hdtRedOp_t> kAll = values(kOps);
  return kAll;
}

const std::vector<EngineKind>& all_engines() {
  static const std::vector<EngineKind> kAll = values(kEngines);
  return kAll;
}

bool reduces(Collective what) {
  return what == Collective::kAllReduce || what == Collective::kReduceScatter || what == Collective::kReduce;
}

bool is_bitwise(hdtRedOp_t op) { return op == HDT_BAND || op == HDT_BOR || op == HDT_BXOR; }

bool moves_data(Collective what) { return what != Collective::kBarrier; }

bool rooted(Collective what) {
  return what == Collective::kBroadcast || what == Collective::kReduce || what == Collective::kGather ||
         what == Collective::kScatter;
}

size_t element_bytes(hdtDataType_t type) {
  switch (type) {
    case HDT_INT8:
    case HDT_UINT8:
    case HDT_FLOAT8E4M3:
    case HDT_FLOAT8E5M2:
      return 1;
    case HDT_INT16:
    case HDT_UINT16:
    case HDT_FLOAT16:
    case HDT_BFLOAT16:
      return 2;
    case HDT_INT32:
    case HDT_UINT32:
    case HDT_FLOAT32:
      return 4;
    case HDT_INT64:
    case HDT_UINT64:
    case HDT_FLOAT64:
      return 8;
    default:  // not in kTypes: cannot be asked for
      return 0;
  }
}

}  // namespace hdt::bench
