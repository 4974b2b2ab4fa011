// chunk.h: the header of a fragment. A link puts it into the immediate (the 64 bytes that a backend delivers
// behind a write) of every fragment. It names the write, the fragment's place in it, and how much has come on
// the same rail in the other direction. So a fragment can be placed and counted in any order, and be sent
// again on another rail.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "transports/link/crc32c.h"
#include "transports/link/link.h"

namespace hdt::transport {

// The first two bytes of the layout's name on the wire ("5H", little endian). A new layout gets new numbers.
inline constexpr uint16_t kChunkMagic = 0x4835;
inline constexpr uint16_t kCheckedChunkMagic = 0x4836;  // the same layout, and `checksum` is to be checked
inline constexpr size_t kChunkPage = 4096;              // fragment sizes are multiples of it, in bytes

// The sender writes it in Outbox::pull() and Rail::write(). What comes from a peer is foreign: to_chunk()
// checks it before any field is used.
struct ChunkHeader {
  LinkHeader header{};              // of the layer above; the same in every fragment of a write
  uint64_t message_id = 0;          // of the write, counted from 0 per link and direction
  uint64_t message_bytes : 48 = 0;  // length of the whole write
  uint64_t received_at : 16 = 0;    // Stamp of the moment when the last of `received` came (delay_meter.h)
  uint32_t index = 0;               // of this fragment in the write, from 0
  uint32_t checksum = 0;            // checksum_of(), if the magic says that there is one
  uint32_t received = 0;            // fragments that came on this rail in the other direction, modulo 2^32
  uint16_t pages = 0;               // size of every fragment of the write but the last, in kChunkPage
  uint16_t magic = kChunkMagic;

  // The size of every fragment but the last, and where this one begins in the write; both in bytes.
  uint64_t chunk_bytes() const { return uint64_t{pages} * kChunkPage; }
  uint64_t offset() const { return index * chunk_bytes(); }
  // The number of fragments of the write. An empty write has one, which carries the header alone.
  uint64_t count() const {
    return message_bytes == 0 ? 1 : (message_bytes + chunk_bytes() - 1) / chunk_bytes();
  }
  // Length of this fragment in bytes.
  uint64_t bytes() const { return std::min<uint64_t>(chunk_bytes(), message_bytes - offset()); }
};
static_assert(sizeof(ChunkHeader) == kImmediateBytes);
static_assert(std::endian::native == std::endian::little, "headers are copied as they lie in memory");

inline Immediate to_immediate(const ChunkHeader& chunk) { return std::bit_cast<Immediate>(chunk); }

// CRC32C over the payload and then the header. `checksum`, `received` and `received_at` count as 0: the last
// two are filled in when the fragment is handed to a rail, and differ when it is sent again on another one.
inline uint32_t checksum_of(ChunkHeader chunk, std::span<const std::byte> payload) {
  chunk.checksum = chunk.received = 0;
  chunk.received_at = 0;
  const Immediate bytes = to_immediate(chunk);
  return crc32c(crc32c(0, payload), bytes);
}

// Reads and checks the header of a fragment of which the backend has placed `placed` bytes. kLink if a field
// is out of range. What remains to be checked is whether the fragment agrees with others of its write
// (arrivals.h) and whether `received` is possible (Rail::acknowledged()).
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
