// arrivals.h: the receiving side's book of messages of which some chunks have landed.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "transports/link/chunk.h"

namespace hdt::transport {

class Arrivals {
 public:
  // A sender works through its queue in order, so no more messages are open than its rails have chunks under
  // way.
  static constexpr size_t kMaxOpenMessages = 8192;
  static constexpr uint64_t kMaxOpenChunks = uint64_t{1} << 23;

  // Counts a landed chunk. True: the message is complete (and forgotten here). Fails for a chunk that was
  // there, that does not fit what was said of its message before, or that exceeds the limits.
  Result<bool> add(const ChunkHeader& chunk);
  size_t open_messages() const { return open_.size(); }

 private:
  struct Message {
    LinkHeader header;
    uint64_t bytes;
    uint32_t chunk_bytes;
    uint64_t missing;
    std::vector<bool> landed;
  };
  std::unordered_map<uint64_t, Message> open_;
  uint64_t open_chunks_ = 0;
};

}  // namespace hdt::transport
