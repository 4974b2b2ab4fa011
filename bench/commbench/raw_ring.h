// raw_ring.h: two plain TCP sockets a rank: one to the rank of the same place on the next node, one from that
// on the node before.
#pragma once

#include <cstddef>
#include <memory>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

// A stretch of memory that is sent from, or received into, again and again.
struct Region {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

class RawRing {
 public:
  // Collective over the group, whose nodes must all have the same number of ranks.
  static Result<std::unique_ptr<RawRing>> connect(Communicator& group, int64_t timeout_s);
  ~RawRing();
  RawRing(const RawRing&) = delete;
  RawRing& operator=(const RawRing&) = delete;

  // Sends `bytes` and receives as many, both at once.
  Status exchange(Region from, Region into, size_t bytes);

 private:
  RawRing(int to_next, int from_previous, int64_t timeout_s)
      : to_next_(to_next), from_previous_(from_previous), timeout_s_(timeout_s) {}

  int to_next_;
  int from_previous_;
  int64_t timeout_s_;
};

}  // namespace hdt::bench
