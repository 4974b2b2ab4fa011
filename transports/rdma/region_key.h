// region_key.h: a RegionKey of this backend: one remote key per NIC of the backend that registered the
// memory. Memory is registered at its offset within a page, so that an address of the adapter is that offset
// plus the offset in the region, and a write that leaves the region leaves what the key allows.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "transports/transport.h"

namespace hdt::transport::rdma {

inline constexpr size_t kMaxNics = 7;

struct PackedKey {
  uint16_t check = 0;
  uint16_t page_offset = 0;
  std::array<uint32_t, kMaxNics> keys{};  // 0: not registered there
};
static_assert(sizeof(PackedKey) == sizeof(RegionKey));

// Against keys of another backend and mangled ones; it protects from nobody. FNV-1a, folded.
inline uint16_t check_of(const PackedKey& key) {
  PackedKey copy = key;
  copy.check = 0x4b52;
  std::array<uint8_t, sizeof copy> bytes;
  std::memcpy(bytes.data(), &copy, sizeof copy);
  uint32_t hash = 2166136261u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 16777619u;
  return static_cast<uint16_t>(hash ^ (hash >> 16));
}

inline RegionKey to_region_key(PackedKey key) {
  key.check = check_of(key);
  RegionKey region;
  std::memcpy(region.bytes.data(), &key, sizeof key);
  return region;
}

// False if it is no key of this backend.
inline bool from_region_key(const RegionKey& region, PackedKey& key) {
  std::memcpy(&key, region.bytes.data(), sizeof key);
  return key.check == check_of(key);
}

}  // namespace hdt::transport::rdma
