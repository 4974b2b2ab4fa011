// outbox.h: the sending side's queue: writes in order, handed out chunk by chunk to whichever rail asks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "transports/link/chunk.h"

namespace hdt::transport {

class Outbox {
 public:
  explicit Outbox(size_t chunk_bytes) : chunk_bytes_(static_cast<uint32_t>(chunk_bytes)) {}

  struct Chunk {
    ChunkHeader header;
    const std::byte* data;
    RegionKey region;
    uint64_t region_offset;
  };

  void push(const WriteRequest& request);
  bool has_chunk() const { return next_ < writes_.size(); }
  // The next chunk, from now on under way. has_chunk() must be true.
  Chunk pull();
  // A chunk of message `message_id` has left the memory. Returns the write's token when it was its last.
  std::optional<uint64_t> on_sent(uint64_t message_id);
  size_t size() const { return pending_; }

 private:
  struct Write {
    WriteRequest request;
    uint64_t pulled = 0;  // bytes handed out
    uint64_t chunks_under_way = 0;
    bool all_pulled = false;
    bool done() const { return all_pulled && chunks_under_way == 0; }
  };

  const uint32_t chunk_bytes_;
  // Message ids are consecutive: writes_[i] has id first_id_ + i. Done writes leave from the front.
  std::deque<Write> writes_;
  uint64_t first_id_ = 0;
  size_t next_ = 0;  // index of the write that chunks are taken from
  size_t pending_ = 0;
};

}  // namespace hdt::transport
