// region_table.h: the registered memory of a software backend (tcp, fake): unguessable key -> bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "transports/transport.h"

namespace hdt::transport {

// A software key uses the first 8 bytes of a RegionKey; the rest is zero.
inline RegionKey to_region_key(uint64_t key) {
  RegionKey region;
  std::memcpy(region.bytes.data(), &key, sizeof key);
  return region;
}

inline uint64_t from_region_key(const RegionKey& region) {
  uint64_t key;
  std::memcpy(&key, region.bytes.data(), sizeof key);
  return key;
}

class RegionTable {
 public:
  // False if the key is taken.
  bool add(uint64_t key, void* base, size_t bytes) {
    return regions_.try_emplace(key, Region{static_cast<std::byte*>(base), bytes}).second;
  }

  void remove(uint64_t key) { regions_.erase(key); }

  // Where [offset, offset + bytes) of the region is, or nullptr if any of it is outside or the key is
  // unknown.
  std::byte* locate(uint64_t key, uint64_t offset, uint64_t bytes) const {
    const auto found = regions_.find(key);
    if (found == regions_.end()) return nullptr;
    const Region& region = found->second;
    // Written so that no sum of foreign numbers can overflow.
    if (bytes > region.bytes || offset > region.bytes - bytes) return nullptr;
    return region.base + offset;
  }

 private:
  struct Region {
    std::byte* base;
    size_t bytes;
  };
  std::unordered_map<uint64_t, Region> regions_;
};

}  // namespace hdt::transport
