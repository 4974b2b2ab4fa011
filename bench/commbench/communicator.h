// communicator.h: the group that a benchmark runs on, as the core of the program sees it: libhdt, one of
// its peers, or a test double. The core knows this interface only, so whole sweeps can be tested without
// a network.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "bench/commbench/names.h"

namespace hdt::bench {

// One call of a collective, with the arguments of hdt.h. `op` and `root` are ignored by collectives that
// have none.
struct Call {
  Collective what;
  // In place, the buffers overlap as hdt.h describes for each collective.
  const void* send;
  void* recv;
  // Elements, with the meaning that hdt.h gives to the argument of each collective.
  size_t count;
  hdtDataType_t type;
  hdtRedOp_t op;
  int root;
};

// Freed when the last owner goes, in the way of the engine that allocated it.
using Memory = std::shared_ptr<std::byte>;

// One engine's group on this rank. Used by one thread. All ranks make the same calls in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // This rank, from 0, and the number of all ranks. They never change.
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Nodes are numbered from 0.
  virtual int node_of(int rank) const = 0;
  // Runs the call, and returns when this rank's part is complete. A sendrecv sends to the next rank and
  // receives from the one before, in a ring.
  virtual Status run(const Call& call) = 0;
  // Returns when all ranks have called it. Separates what is measured from what is not.
  virtual Status barrier() = 0;
  // Gathers `bytes` bytes of each rank: recv[r * bytes ...] is what rank r sent. `bytes` must be a
  // multiple of 4. For the benchmark's own bookkeeping; it is never measured.
  virtual Status gather_all(const void* send, size_t bytes, void* recv) = 0;
  // Memory for message buffers.
  virtual Result<Memory> allocate(size_t bytes) = 0;

  // Why the engine has no such call; empty: it has. The answer depends only on what is equal on all
  // ranks, and not on the pointers, so all ranks skip the same rows.
  virtual std::string lacks(const Call& call) const {
    (void)call;
    return "";
  }
  // True if an in-place reduce-scatter leaves its result at the start of the buffer and may write to the
  // rest. hdt.h leaves the result in the rank's own part and the rest unchanged.
  virtual bool scatters_to_start() const { return false; }
  // False if only bytes are moved and no result is made (raw). Then there is nothing to verify.
  virtual bool makes_results() const { return true; }
};

}  // namespace hdt::bench
