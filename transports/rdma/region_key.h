// region_key.h: the RegionKey of this backend: one remote key for each NIC of the backend that registered
// the memory. The peer that writes takes the key of the NIC that its connection leads to
// (Hello::nic_slot).
//
// Memory is registered with its offset within a page as the adapter's address. So the address of a byte is
// that page offset plus the offset in the region, and the key does not reveal where the memory lies in
// the process. A write that leaves the region leaves what the remote key allows, and the adapter refuses
// it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "transports/transport.h"

namespace hdt::transport::rdma {

// As many as fit into the 32 bytes of a RegionKey.
inline constexpr size_t kMaxNics = 7;

// The content of a RegionKey.
struct PackedKey {
  uint16_t check = 0;        // check_of() of the rest
  uint16_t page_offset = 0;  // the adapter's address of the first byte of the region, below the page size
  std::array<uint32_t, kMaxNics> keys{};  // rkey by NIC slot; 0: not registered there
};
static_assert(sizeof(PackedKey) == sizeof(RegionKey));

// A checksum that detects keys of another backend and mangled ones. It protects against nobody. FNV-1a,
// folded to 16 bits.
inline uint16_t check_of(const PackedKey& key) {
  PackedKey copy = key;
  copy.check = 0x4b52;
  std::array<uint8_t, sizeof copy> bytes;
  std::memcpy(bytes.data(), &copy, sizeof copy);
  uint32_t hash = 2166136261u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 16777619u;
  return static_cast<uint16_t>(hash ^ (hash >> 16));
}

// Fills in the check.
inline RegionKey to_region_key(PackedKey key) {
  key.check = check_of(key);
  RegionKey region;
  std::memcpy(region.bytes.data(), &key, sizeof key);
  return region;
}

// False if it is not a key of this backend.
inline bool from_region_key(const RegionKey& region, PackedKey& key) {
  std::memcpy(&key, region.bytes.data(), sizeof key);
  return key.check == check_of(key);
}

}  // namespace hdt::transport::rdma
