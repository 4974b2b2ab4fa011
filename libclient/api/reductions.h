// reductions.h: the reductions of a communicator that are not built in: sums of contributions that each
// rank multiplies by a number of its own first (hdtRedOpCreatePreMulSum). The multiplication is this
// rank's affair; the other ranks and the daemon see a plain sum, under a ReduceOp of its own.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "hdt/hdt.h"
#include "ipc/call.h"

namespace hdt::client {

// A rank's contribution to a reducing operation, ready to be summed or otherwise combined.
struct Contribution {
  collectives::ReduceOp op = collectives::ReduceOp::kSum;
  // The elements to contribute: the caller's sendbuf, or a multiplied copy of it.
  const void* send = nullptr;
  // Holds the copy, if it is in memory of its own. It must live until the operation is complete.
  std::shared_ptr<void> memory;
};

// False for values that hdtRedOpCreatePreMulSum returns, and for values that are no reduction.
// The number between HDT_AVG and HDT_BAND is internal: ReduceOp::kPreMulSum.
constexpr bool is_built_in(hdtRedOp_t op) {
  return (op >= HDT_SUM && op <= HDT_AVG) || (op >= HDT_BAND && op <= HDT_BXOR);
}

// False for bitwise reductions of floating-point numbers. `op` is built in, the type known.
constexpr bool can_reduce(hdtDataType_t type, hdtRedOp_t op) {
  return collectives::can_reduce(static_cast<collectives::DataType>(type),
                                 static_cast<collectives::ReduceOp>(op));
}

// The table of one communicator, owned by its hdtComm. Any thread. Numbers are never used again, so a
// reduction that was destroyed is not taken for a later one.
class Reductions {
 public:
  // The handle of a sum of contributions multiplied by *scalar, which is read now. `type` must be known,
  // and the scalar must have its size.
  hdtRedOp_t add(const void* scalar, hdtDataType_t type);
  // kInvalidArgument: no such reduction was created here, or it is removed already. Operations that were
  // submitted with it are not affected, as their contributions are multiplied already.
  Status remove(hdtRedOp_t op);

  // Prepares `count` elements of `send` as `op` wants them. A built-in reduction takes them as they are.
  // Multiplied ones are written to `scratch`, which may be `send`; if it is null, to memory of their
  // own. kInvalidArgument: an unknown reduction, one that was made for another type, or a bitwise one of
  // floating-point numbers. Throws std::bad_alloc.
  Result<Contribution> contribute(hdtRedOp_t op, hdtDataType_t type, const void* send, size_t count,
                                  void* scratch) const;

 private:
  struct PreMulSum {
    hdtDataType_t type;
    // As many bytes as the type has; the widest has 8.
    std::array<std::byte, 8> scalar;
  };
  // Guards the following two.
  mutable std::mutex mutex_;
  std::map<int, PreMulSum> made_;
  // The next number, far above those of the built-in reductions.
  int next_ = 1 << 16;
};

}  // namespace hdt::client
