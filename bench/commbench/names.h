// names.h: the collectives, types, reductions and engines that hdt-commbench knows, by name. The values
// of types and reductions are those of hdt.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hdt/hdt.h"

namespace hdt::bench {

// In the order of --help and of `all`.
enum class Collective {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,
  kBarrier
};

// The engine that a row is measured on: HDT, one of its peers, or the machine itself (plain sockets or
// memcpy), which is the bound.
enum class EngineKind { kHdt, kGloo, kMpi, kRaw };

// HDT's names; "unknown" for any other value.
const char* name_of(Collective what);
const char* name_of(hdtDataType_t type);
const char* name_of(hdtRedOp_t op);
const char* name_of(EngineKind engine);

// By HDT's name or by that of nccl-tests ("float32" or "float"; "allreduce" or "all_reduce").
std::optional<Collective> find_collective(std::string_view name);
std::optional<hdtDataType_t> find_type(std::string_view name);
std::optional<hdtRedOp_t> find_op(std::string_view name);
std::optional<EngineKind> find_engine(std::string_view name);

// All values, in the order of the tables.
const std::vector<Collective>& all_collectives();
const std::vector<hdtDataType_t>& all_types();
const std::vector<hdtRedOp_t>& all_ops();
const std::vector<EngineKind>& all_engines();

// True if the collective combines contributions, and so has a reduction.
bool reduces(Collective what);
// True if the reduction combines bits, and so integers only.
bool is_bitwise(hdtRedOp_t op);
// False for a barrier: it has no size, type or result.
bool moves_data(Collective what);
// True if one rank, the root, plays a part of its own.
bool rooted(Collective what);

// 0 for a type that hdt-commbench does not know.
size_t element_bytes(hdtDataType_t type);

}  // namespace hdt::bench
