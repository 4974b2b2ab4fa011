// arrivals.h: the receiving side's book of messages of which some chunks have landed, and of those that are
// complete, so that nothing counts twice.
#pragma once

#include <cstdint>
#include <deque>
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
  // How far a message may be ahead of the oldest incomplete one.
  static constexpr uint64_t kMaxAhead = uint64_t{1} << 20;

  // Counts a landed chunk. True: the message is complete. Fails for a chunk that was there, that does not fit
  // what was said of its message before, or that exceeds the limits.
  Result<bool> add(const ChunkHeader& chunk);
  size_t open_messages() const { return open_.size(); }

 private:
  struct Message {
    LinkHeader header;
    uint64_t bytes;
    uint16_t pages;
    uint64_t missing;
    std::vector<bool> landed;
  };
  void complete(uint64_t id);

  std::unordered_map<uint64_t, Message> open_;
  uint64_t open_chunks_ = 0;
  // All messages below floor_ are complete; complete_[i] tells it of floor_ + i.
  uint64_t floor_ = 0;
  std::deque<bool> complete_;
};

}  // namespace hdt::transport
