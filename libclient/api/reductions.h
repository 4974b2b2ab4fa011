// reductions.h: the reductions of a communicator that are not built in: sums of contributions that each rank
// multiplies by a number of its own first.
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

// What a rank hands to a reducing operation.
struct Contribution {
  collectives::ReduceOp op = collectives::ReduceOp::kSum;
  const void* send = nullptr;
  std::shared_ptr<void> memory;  // holds `send` where that is not the caller's
};

// Not made by hdtRedOpCreatePreMulSum.
constexpr bool is_built_in(hdtRedOp_t op) { return op >= HDT_SUM && op <= HDT_AVG; }

// Any thread.
class Reductions {
 public:
  // The handle of a sum of contributions multiplied by *scalar.
  hdtRedOp_t add(const void* scalar, hdtDataType_t type);
  Status remove(hdtRedOp_t op);

  // `count` elements of `send` as `op` wants them. Multiplied ones are written to `scratch`, which may be
  // `send`; null: to memory of their own. An unknown reduction, or one of another type: kInvalidArgument.
  Result<Contribution> contribute(hdtRedOp_t op, hdtDataType_t type, const void* send, size_t count,
                                  void* scratch) const;

 private:
  struct PreMulSum {
    hdtDataType_t type;
    std::array<std::byte, 8> scalar;
  };
  mutable std::mutex mutex_;
  std::map<int, PreMulSum> made_;
  int next_ = 1 << 16;  // far above those that are built in
};

}  // namespace hdt::client
