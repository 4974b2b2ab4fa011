// region_table.h: the registered memory of a software backend (tcp, fake): unguessable key -> bounds, and
// which peers may write to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

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
  bool empty() const { return regions_.empty(); }

  // Takes over what `from` knows of the key. False if that is nothing.
  bool copy(uint64_t key, const RegionTable& from) {
    const auto found = from.regions_.find(key);
    if (found == from.regions_.end()) return false;
    regions_.insert_or_assign(key, found->second);
    return true;
  }

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

// Everything that is registered, and of each peer what was granted to it. A connection keeps the table of its
// peer, so that a write is looked up in one table, as if there were no others.
class RegionGrants {
 public:
  using Table = std::shared_ptr<RegionTable>;

  bool add(uint64_t key, void* base, size_t bytes) { return all_.add(key, base, bytes); }

  void remove(uint64_t key) {
    all_.remove(key);
    for (const auto& [peer, table] : peers_) table->remove(key);
    forget_unused();
  }

  // False: it is not registered.
  bool grant(uint64_t key, const PeerName& peer) { return entry(peer)->copy(key, all_); }

  // Null: nothing was granted to that peer.
  Table revoke(uint64_t key, const PeerName& peer) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return nullptr;
    found->second->remove(key);
    return found->second;
  }

  // Of a connection that is admitted as `peer`.
  Table table_of(const PeerName& peer) {
    forget_unused();
    return entry(peer);
  }

 private:
  Table& entry(const PeerName& peer) {
    const auto known = peers_.find(peer);
    if (known != peers_.end()) return known->second;
    auto table = std::make_shared<RegionTable>();  // first: an entry without one would be looked into
    return peers_.emplace(peer, std::move(table)).first->second;
  }
  void forget_unused() {
    std::erase_if(peers_,
                  [](const auto& entry) { return entry.second.use_count() == 1 && entry.second->empty(); });
  }

  RegionTable all_;
  std::map<PeerName, Table> peers_;
};

}  // namespace hdt::transport
