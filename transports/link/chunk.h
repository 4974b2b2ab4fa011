// chunk.h: what a link writes into the immediate of every chunk: the message's header and which part of it
// this is. With it a chunk can be placed and counted in any order, and be sent again on another rail.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "transports/link/link.h"

namespace hdt::transport {

inline constexpr uint32_t kChunkMagic = 0x31434448;  // "HDC1": a new number for a new layout

struct ChunkHeader {
  LinkHeader header{};
  uint64_t message_id = 0;     // counted from 0 per link and direction
  uint64_t message_bytes = 0;  // of the whole write
  uint64_t offset = 0;         // of this chunk in the write: a multiple of chunk_bytes
  uint32_t chunk_bytes = 0;    // of every chunk of the write but the last
  uint32_t magic = kChunkMagic;

  uint64_t index() const { return offset / chunk_bytes; }
  uint64_t count() const { return message_bytes == 0 ? 1 : (message_bytes + chunk_bytes - 1) / chunk_bytes; }
  // Length of this chunk.
  uint64_t bytes() const { return std::min<uint64_t>(chunk_bytes, message_bytes - offset); }
};
static_assert(sizeof(ChunkHeader) == kImmediateBytes);
static_assert(std::endian::native == std::endian::little, "headers are copied as they lie in memory");

inline Immediate to_immediate(const ChunkHeader& chunk) { return std::bit_cast<Immediate>(chunk); }

// Checks a foreign header, of a write that placed `placed` bytes.
inline Result<ChunkHeader> to_chunk(const Immediate& immediate, uint64_t placed) {
  const auto chunk = std::bit_cast<ChunkHeader>(immediate);
  const auto bad = [](const char* what) {
    return Status(Code::kLink, std::string("malformed chunk: ") + what);
  };
  if (chunk.magic != kChunkMagic) return bad("unknown layout");
  if (chunk.chunk_bytes < kMinChunkBytes || chunk.chunk_bytes > kMaxChunkBytes) return bad("chunk size");
  if (chunk.message_bytes > kMaxLinkWriteBytes) return bad("message size");
  if (chunk.offset % chunk.chunk_bytes != 0) return bad("offset is not on a chunk boundary");
  if (chunk.offset > chunk.message_bytes || chunk.index() >= chunk.count())
    return bad("offset behind the end");
  if (placed != chunk.bytes()) return bad("length does not fit its place");
  return chunk;
}

}  // namespace hdt::transport
