// outbox.cc: see outbox.h.
#include "transports/link/outbox.h"

namespace hdt::transport {

void Outbox::push(const WriteRequest& request) {
  writes_.emplace_back().request = request;
  ++pending_;
}

Outbox::Chunk Outbox::pull() {
  Write& write = writes_[next_];
  const WriteRequest& request = write.request;
  Chunk chunk;
  chunk.header.header = request.header;
  chunk.header.message_id = first_id_ + next_;
  chunk.header.message_bytes = request.bytes;
  chunk.header.offset = write.pulled;
  chunk.header.chunk_bytes = chunk_bytes_;
  chunk.data = static_cast<const std::byte*>(request.data) + write.pulled;
  chunk.region = request.region;
  chunk.region_offset = request.offset + write.pulled;
  write.pulled += chunk.header.bytes();
  ++write.chunks_under_way;
  if (write.pulled == request.bytes) {
    write.all_pulled = true;
    ++next_;
  }
  return chunk;
}

std::optional<uint64_t> Outbox::on_sent(uint64_t message_id) {
  Write& write = writes_[message_id - first_id_];
  --write.chunks_under_way;
  if (!write.done()) return std::nullopt;
  const uint64_t token = write.request.token;
  --pending_;
  while (!writes_.empty() && writes_.front().done()) {
    writes_.pop_front();
    ++first_id_;
    --next_;
  }
  return token;
}

}  // namespace hdt::transport
