// chunk.h: what a link writes into the immediate of every chunk: the message's header, which part of it this
// is, and how much has come the other way on the same rail. With it a chunk can be placed and counted in any
// order, and be sent again on another rail.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "transports/link/crc32c.h"
#include "transports/link/link.h"

namespace hdt::transport {

// New numbers for a new layout.
inline constexpr uint16_t kChunkMagic = 0x4835;         // "5H"
inline constexpr uint16_t kCheckedChunkMagic = 0x4836;  // the same with a checksum
inline constexpr size_t kChunkPage = 4096;              // chunk sizes are multiples of it

struct ChunkHeader {
  LinkHeader header{};
  uint64_t message_id = 0;          // counted from 0 per link and direction
  uint64_t message_bytes : 48 = 0;  // of the whole write
  uint64_t received_at : 16 = 0;    // when the last of `received` came, by the clock of who sends this
  uint32_t index = 0;               // of this chunk in the write
  uint32_t checksum = 0;            // of payload and header, with this and what says what was received 0
  uint32_t received = 0;            // chunks that have come on this rail the other way, modulo 2^32
  uint16_t pages = 0;               // chunk size in pages, of every chunk of the write but the last
  uint16_t magic = kChunkMagic;

  uint64_t chunk_bytes() const { return uint64_t{pages} * kChunkPage; }
  uint64_t offset() const { return index * chunk_bytes(); }
  uint64_t count() const {
    return message_bytes == 0 ? 1 : (message_bytes + chunk_bytes() - 1) / chunk_bytes();
  }
  // Length of this chunk.
  uint64_t bytes() const { return std::min<uint64_t>(chunk_bytes(), message_bytes - offset()); }
};
static_assert(sizeof(ChunkHeader) == kImmediateBytes);
static_assert(std::endian::native == std::endian::little, "headers are copied as they lie in memory");

inline Immediate to_immediate(const ChunkHeader& chunk) { return std::bit_cast<Immediate>(chunk); }

inline uint32_t checksum_of(ChunkHeader chunk, std::span<const std::byte> payload) {
  chunk.checksum = chunk.received = 0;
  chunk.received_at = 0;
  const Immediate bytes = to_immediate(chunk);
  return crc32c(crc32c(0, payload), bytes);
}

// Checks a foreign header, of a write that placed `placed` bytes.
inline Result<ChunkHeader> to_chunk(const Immediate& immediate, uint64_t placed) {
  const auto chunk = std::bit_cast<ChunkHeader>(immediate);
  const auto bad = [](const char* what) {
    return Status(Code::kLink, std::string("malformed chunk: ") + what);
  };
  if (chunk.magic != kChunkMagic && chunk.magic != kCheckedChunkMagic) return bad("unknown layout");
  if (chunk.chunk_bytes() < kMinChunkBytes || chunk.chunk_bytes() > kMaxChunkBytes) return bad("chunk size");
  if (chunk.message_bytes > kMaxLinkWriteBytes) return bad("message size");
  if (chunk.index >= chunk.count()) return bad("place behind the end");
  if (placed != chunk.bytes()) return bad("length does not fit its place");
  return chunk;
}

}  // namespace hdt::transport
