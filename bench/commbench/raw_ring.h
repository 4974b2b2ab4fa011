// raw_ring.h: two plain TCP sockets a rank: one to the rank with the same place on the next node, and
// one from that on the node before.
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

// This rank's two connections. Used by one thread.
class RawRing {
 public:
  // Connects the ring. All ranks of the group must call it. kInvalidArgument if the nodes have different
  // numbers of ranks; kTimeout if the rank before does not connect in `timeout_s` seconds.
  static Result<std::unique_ptr<RawRing>> connect(Communicator& group, int64_t timeout_s);
  ~RawRing();
  RawRing(const RawRing&) = delete;
  RawRing& operator=(const RawRing&) = delete;

  // Sends `bytes` bytes and receives as many, both at once. kTimeout if nothing moves for `timeout_s`
  // seconds.
  Status exchange(Region from, Region into, size_t bytes);

 private:
  RawRing(int to_next, int from_previous, int64_t timeout_s)
      : to_next_(to_next), from_previous_(from_previous), timeout_s_(timeout_s) {}

  int to_next_;
  int from_previous_;
  int64_t timeout_s_;
};

}  // namespace hdt::bench
