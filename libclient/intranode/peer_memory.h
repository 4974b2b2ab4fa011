// peer_memory.h: memory of hdtMemAlloc that other ranks of this node share, as one communicator has mapped
// it. Not thread-safe: the communicator's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "base/shared_memory.h"

namespace hdt::client {

class PeerMemory {
 public:
  using Open = std::function<Result<SharedMemory>(uint64_t memory)>;
  explicit PeerMemory(Open open) : open_(std::move(open)) {}

  // Maps `memory` on first use, a question to the daemon. Fails if [offset, offset + bytes) is not in it.
  Result<std::byte*> reach(uint64_t memory, uint64_t offset, uint64_t bytes);

 private:
  void drop_freed();

  Open open_;
  std::map<uint64_t, SharedMemory> mapped_;
};

}  // namespace hdt::client
