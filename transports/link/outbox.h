// outbox.h: the sending side's queue: writes in order, handed out chunk by chunk to whichever rail asks, and
// kept until every chunk has arrived. Chunks that were lost with their rail are handed out again, first.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "transports/link/chunk.h"

namespace hdt::transport {

class Outbox {
 public:
  explicit Outbox(size_t chunk_bytes) : most_pages_(static_cast<uint16_t>(chunk_bytes / kChunkPage)) {}

  struct Chunk {
    ChunkHeader header;
    const std::byte* data = nullptr;
    RegionKey region;
    uint64_t region_offset = 0;
    bool handed_over = false;  // once was reported sent by a rail
    int64_t written_ns = 0;    // to the rail it is under way on
  };

  // Writes are cut so that each of `rails` gets a part, if they are large enough, in parts of at most
  // `most_bytes`.
  void push(const WriteRequest& request, size_t rails, uint64_t most_bytes);
  bool has_chunk() const { return !again_.empty() || next_ < writes_.size(); }
  // The next chunk, from now on under way. has_chunk() must be true.
  Chunk pull();
  // Lost on its way: to be pulled again.
  void put_back(Chunk chunk) {
    queued_bytes_ += chunk.header.bytes();
    again_.push_back(std::move(chunk));
  }
  // A chunk left the memory for the first time; it has arrived. Either returns the token of its write if its
  // memory is free with that.
  std::optional<uint64_t> on_handed_over(const Chunk& chunk);
  std::optional<uint64_t> on_arrived(const Chunk& chunk);
  // Writes whose memory is not free yet.
  size_t size() const { return pending_; }
  uint64_t queued_bytes() const { return queued_bytes_; }  // to be pulled
  // Writes so far; how many of the first ones have all arrived.
  uint64_t written() const { return first_id_ + writes_.size(); }
  uint64_t arrived() const { return first_id_; }
  // Every write has arrived.
  bool empty() const { return writes_.empty(); }

 private:
  struct Write {
    WriteRequest request;
    std::vector<std::byte> copy;
    uint16_t pages = 0;
    uint64_t chunks = 0;
    uint64_t pulled = 0;
    uint64_t handed_over = 0;
    uint64_t arrived = 0;
    bool copied() const { return request.bytes <= kCopiedWriteBytes && !request.until_arrived; }
  };
  Write& write_of(const Chunk& chunk) { return writes_[chunk.header.message_id - first_id_]; }

  const uint16_t most_pages_;
  // Message ids are consecutive: writes_[i] has id first_id_ + i. Writes that have arrived leave from the
  // front.
  std::deque<Write> writes_;
  std::deque<Chunk> again_;
  uint64_t first_id_ = 0;
  size_t next_ = 0;  // index of the write that chunks are taken from
  size_t pending_ = 0;
  uint64_t queued_bytes_ = 0;
};

}  // namespace hdt::transport
