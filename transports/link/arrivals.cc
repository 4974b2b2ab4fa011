// arrivals.cc: see arrivals.h.
#include "transports/link/arrivals.h"

#include <string>

namespace hdt::transport {

namespace {
Status refuse(const ChunkHeader& chunk, const char* why) {
  return {Code::kLink, "chunk at offset " + std::to_string(chunk.offset) + " of message " +
                           std::to_string(chunk.message_id) + ": " + why};
}
}  // namespace

Result<bool> Arrivals::add(const ChunkHeader& chunk) {
  auto found = open_.find(chunk.message_id);
  if (found == open_.end()) {
    if (chunk.count() == 1) return true;
    if (open_.size() >= kMaxOpenMessages || chunk.count() > kMaxOpenChunks - open_chunks_) {
      return refuse(chunk, "too many incomplete messages");
    }
    open_chunks_ += chunk.count();
    Message fresh{chunk.header, chunk.message_bytes, chunk.chunk_bytes, chunk.count(), {}};
    fresh.landed.resize(chunk.count());
    found = open_.emplace(chunk.message_id, std::move(fresh)).first;
  }
  Message& message = found->second;
  if (message.bytes != chunk.message_bytes || message.chunk_bytes != chunk.chunk_bytes ||
      message.header != chunk.header) {
    return refuse(chunk, "contradicts an earlier chunk of the message");
  }
  if (message.landed[chunk.index()]) return refuse(chunk, "came twice");
  message.landed[chunk.index()] = true;
  if (--message.missing > 0) return false;
  open_chunks_ -= message.landed.size();
  open_.erase(found);
  return true;
}

}  // namespace hdt::transport
