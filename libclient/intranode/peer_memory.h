// peer_memory.h: memory of hdtMemAlloc that other ranks of this node share, as one communicator has
// mapped it. Mappings are kept until their owner has freed the memory, as large buffers are used again
// and again. It is not thread-safe: the communicator's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "base/shared_memory.h"

namespace hdt::client {

// Owned by the IntranodeQueue. A memory is known by the number that the daemon gave it for this group.
class PeerMemory {
 public:
  // Gets and maps the memory of that number, by asking the daemon (Session::open_memory()).
  using Open = std::function<Result<SharedMemory>(uint64_t memory)>;
  explicit PeerMemory(Open open) : open_(std::move(open)) {}

  // The place of [offset, offset + bytes) in the memory, which is mapped on first use. kInternal: the
  // range is not within it. Other errors are those of `open`.
  Result<std::byte*> reach(uint64_t memory, uint64_t offset, uint64_t bytes);

 private:
  // Unmaps what its owner has freed.
  void drop_freed();

  Open open_;
  // By number.
  std::map<uint64_t, SharedMemory> mapped_;
};

}  // namespace hdt::client
