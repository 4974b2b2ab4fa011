// call.h: one collective call, as ranks publish it and daemons compare it.
#pragma once

#include <cstdint>

#include "collectives/types.h"

namespace hdt::session {

// One collective call, as a rank made it. All ranks of the group must publish equal ones.
struct Call {
  uint64_t count = 0;
  int32_t root = 0;
  collectives::Collective what = collectives::Collective::kBarrier;
  collectives::DataType type = collectives::DataType::kInt32;
  collectives::ReduceOp op = collectives::ReduceOp::kSum;
  uint8_t reserved = 0;
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 16);

}  // namespace hdt::session
