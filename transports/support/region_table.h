// region_table.h: the registered memory of a software backend (tcp, ofi, ucx, fake): which memory a key
// names, and which peers may write to it. Keys and offsets that are looked up come from peers and are
// foreign.
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

// Regions by key. RegionGrants has one table of all regions, and one for each peer with the regions granted
// to it.
class RegionTable {
 public:
  // False if the key is taken.
  bool add(uint64_t key, void* base, size_t bytes) {
    return regions_.try_emplace(key, Region{static_cast<std::byte*>(base), bytes}).second;
  }

  void remove(uint64_t key) { regions_.erase(key); }
  bool empty() const { return regions_.empty(); }

  // Copies the region of that key out of `from`. False if `from` does not have it.
  bool copy(uint64_t key, const RegionTable& from) {
    const auto found = from.regions_.find(key);
    if (found == from.regions_.end()) return false;
    regions_.insert_or_assign(key, found->second);
    return true;
  }

  // The memory of [offset, offset + bytes) of the region. nullptr if any of it is outside or the key is
  // unknown. May be called with any numbers.
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

// Everything that is registered, and for each peer what was granted to it. A connection holds the table of
// its peer from its admission on, so that a write costs one look-up in one table; grants and revocations
// change that table in place. One per Backend, used on its thread, or under the mutex of a FakeNetwork.
class RegionGrants {
 public:
  using Table = std::shared_ptr<RegionTable>;  // shared with the connections of that peer

  // Registers memory; nobody may write to it yet. False if the key is taken.
  bool add(uint64_t key, void* base, size_t bytes) { return all_.add(key, base, bytes); }

  // Deregisters it and takes it from all peers.
  void remove(uint64_t key) {
    all_.remove(key);
    for (const auto& [peer, table] : peers_) table->remove(key);
    forget_unused();
  }

  // False: the key is not registered.
  bool grant(uint64_t key, const PeerName& peer) { return entry(peer)->copy(key, all_); }

  // Returns the peer's table, by which its connections are found. Null: there is no table of that peer.
  Table revoke(uint64_t key, const PeerName& peer) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return nullptr;
    found->second->remove(key);
    return found->second;
  }

  // The table for a connection that is being admitted as `peer`.
  Table table_of(const PeerName& peer) {
    forget_unused();
    return entry(peer);
  }

 private:
  Table& entry(const PeerName& peer) {
    const auto known = peers_.find(peer);
    if (known != peers_.end()) return known->second;
    // The table is made before the entry: if making it threw, an entry with a null table would stay.
    auto table = std::make_shared<RegionTable>();
    return peers_.emplace(peer, std::move(table)).first->second;
  }
  // Drops the tables of peers without a connection and without a grant, so that former peers take no memory.
  void forget_unused() {
    std::erase_if(peers_,
                  [](const auto& entry) { return entry.second.use_count() == 1 && entry.second->empty(); });
  }

  RegionTable all_;
  std::map<PeerName, Table> peers_;
};

}  // namespace hdt::transport
