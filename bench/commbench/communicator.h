// communicator.h: the group a benchmark runs on, as the core sees it: libhdt or one of its peers in the
// program, a test double in tests.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "bench/commbench/names.h"

namespace hdt::bench {

struct Call {
  Collective what;
  const void* send;
  void* recv;
  size_t count;
  hdtDataType_t type;
  hdtRedOp_t op;
  int root;
};

using Memory = std::shared_ptr<std::byte>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual int node_of(int rank) const = 0;
  // Returns when this rank's part is complete. A sendrecv goes to the next rank and comes from the one
  // before.
  virtual Status run(const Call& call) = 0;
  virtual Status barrier() = 0;
  // recv[r * bytes ...] = rank r's send. For the benchmark's own bookkeeping.
  virtual Status gather_all(const void* send, size_t bytes, void* recv) = 0;
  virtual Result<Memory> allocate(size_t bytes) = 0;

  // Why this engine has no such call; empty: it has. Depends on nothing but what is equal on all ranks, and
  // not on the pointers.
  virtual std::string lacks(const Call& call) const {
    (void)call;
    return "";
  }
  // True where an in-place reduce-scatter leaves its result at the start of the buffer and may write to the
  // rest.
  virtual bool scatters_to_start() const { return false; }
  // False where only bytes are moved and no result is made (raw): there is nothing to verify.
  virtual bool makes_results() const { return true; }
};

}  // namespace hdt::bench
