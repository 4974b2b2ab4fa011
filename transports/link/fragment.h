// fragment.h: the header of a fragment. A link puts it into the immediate (the 64 bytes that a backend
// delivers behind a write) of every fragment. It names the write, the fragment's place in it, and how much
// has come on the same rail in the other direction. So a fragment can be placed and counted in any order, and
// be sent again on another rail.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/crc32c.h"
#include "base/status.h"
#include "transports/link/link.h"

namespace hdt::transport {

// The first two bytes of the layout's name on the wire ("5H", little endian). A new layout gets new numbers.
inline constexpr uint16_t kFragmentMagic = 0x4835;
inline constexpr uint16_t kCheckedFragmentMagic = 0x4836;  // the same layout, and `checksum` is to be checked
inline constexpr size_t kFragmentPage = 4096;              // fragment sizes are multiples of it, in bytes

// The sender writes it in Outbox::pull() and Rail::write(). A header from a peer is foreign: to_fragment()
// checks it before any field is used.
struct FragmentHeader {
  LinkHeader header{};              // of the layer above; the same in every fragment of a write
  uint64_t message_id = 0;          // of the write, counted from 0 per link and direction
  uint64_t message_bytes : 48 = 0;  // length of the whole write
  uint64_t received_at : 16 = 0;    // Stamp of the moment when the last of `received` came (delay_meter.h)
  uint32_t index = 0;               // of this fragment in the write, from 0
  uint32_t checksum = 0;            // checksum_of(), if the magic says that there is one
  uint32_t received = 0;            // fragments that came on this rail in the other direction, modulo 2^32
  uint16_t pages = 0;               // size of every fragment of the write but the last, in kFragmentPage
  uint16_t magic = kFragmentMagic;

  // The size of every fragment but the last, and where this one begins in the write; both in bytes.
  uint64_t fragment_bytes() const { return uint64_t{pages} * kFragmentPage; }
  uint64_t offset() const { return index * fragment_bytes(); }
  // The number of fragments of the write. An empty write has one, which carries the header alone.
  uint64_t count() const {
    return message_bytes == 0 ? 1 : (message_bytes + fragment_bytes() - 1) / fragment_bytes();
  }
  // Length of this fragment in bytes.
  uint64_t bytes() const { return std::min<uint64_t>(fragment_bytes(), message_bytes - offset()); }
};
static_assert(sizeof(FragmentHeader) == kImmediateBytes);
static_assert(std::endian::native == std::endian::little, "headers are copied as they lie in memory");

inline Immediate to_immediate(const FragmentHeader& fragment) { return std::bit_cast<Immediate>(fragment); }

// CRC32C over the payload and then the header. `checksum`, `received` and `received_at` count as 0: the last
// two are filled in when the fragment is handed to a rail, and differ when it is sent again on another one.
inline uint32_t checksum_of(FragmentHeader fragment, std::span<const std::byte> payload) {
  fragment.checksum = fragment.received = 0;
  fragment.received_at = 0;
  const Immediate bytes = to_immediate(fragment);
  return crc32c(crc32c(0, payload), bytes);
}

// Reads and checks the header of a fragment of which the backend has placed `placed` bytes. kLink if a field
// is out of range. It remains to be checked whether the fragment agrees with others of its write
// (arrivals.h) and whether `received` is possible (Rail::acknowledged()).
inline Result<FragmentHeader> to_fragment(const Immediate& immediate, uint64_t placed) {
  const auto fragment = std::bit_cast<FragmentHeader>(immediate);
  const auto bad = [](const char* what) {
    return Status(Code::kLink, std::string("malformed fragment: ") + what);
  };
  if (fragment.magic != kFragmentMagic && fragment.magic != kCheckedFragmentMagic)
    return bad("unknown layout");
  if (fragment.fragment_bytes() < kMinFragmentBytes || fragment.fragment_bytes() > kMaxFragmentBytes)
    return bad("fragment size");
  if (fragment.message_bytes > kMaxLinkWriteBytes) return bad("message size");
  if (fragment.index >= fragment.count()) return bad("place behind the end");
  if (placed != fragment.bytes()) return bad("length does not fit its place");
  return fragment;
}

}  // namespace hdt::transport
