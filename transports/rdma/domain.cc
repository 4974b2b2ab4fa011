// domain.cc: registered memory and grants; see domain.h.
#include "transports/rdma/domain.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace hdt::transport::rdma {

// Registrations go before the adapters, which are members.
Domain::~Domain() {
  for (auto& [base, region] : regions_) release(region);
}

Result<Nic*> Domain::nic(const std::string& name) {
  for (const auto& nic : nics_) {
    if (nic->name() == name && !nic->removed()) return nic.get();
  }
  if (nics_.size() == kMaxNics) {
    return Status(Code::kNoBackend, "cannot open " + name + ": one backend uses at most " +
                                        std::to_string(kMaxNics) + " RDMA devices");
  }
  Result<std::unique_ptr<Nic>> opened = Nic::open(verbs_, name, static_cast<uint16_t>(nics_.size()));
  if (!opened.is_ok()) return opened.status();
  nics_.push_back(opened.take());
  return nics_.back().get();
}

// The right of peers to write is part of the registration, so it is given from the start. Nobody can use
// it before a peer is admitted: queue pairs allow no writes until then (QueuePair::allow_writes()). A
// limit of locked memory is the usual reason for a refusal, so the error names it.
Result<RegionKey> Domain::add_region(void* base, size_t bytes) {
  Region region;
  region.base = static_cast<std::byte*>(base);
  region.bytes = bytes;
  region.iova = reinterpret_cast<uintptr_t>(base) % static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  PackedKey key;
  key.page_offset = static_cast<uint16_t>(region.iova);
  for (const auto& nic : nics_) {
    if (nic->removed()) continue;
    ibv_mr* const made = verbs_->register_memory(nic->pd(), base, bytes, region.iova,
                                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (made == nullptr) {
      const int error = errno;
      release(region);
      return Status::from_errno("cannot register " + std::to_string(bytes) + " bytes with " + nic->name() +
                                    (error == ENOMEM ? " (see ulimit -l: memory that may be locked)" : ""),
                                error);
    }
    region.registrations[nic->slot()] = made;
    key.keys[nic->slot()] = made->rkey;
  }
  const auto added = regions_.emplace(region.base, region);
  for (size_t slot = 0; slot < kMaxNics; ++slot) {
    if (key.keys[slot] != 0) by_key_[slot][key.keys[slot]] = &added->second;
  }
  return to_region_key(key);
}

// Any of the keys will do: a NIC gives each of its registrations a key of its own. A key of 0 is in no
// map.
const Domain::Region* Domain::region_of(const PackedKey& key) const {
  for (size_t slot = 0; slot < kMaxNics; ++slot) {
    const auto entry = by_key_[slot].find(key.keys[slot]);
    if (entry != by_key_[slot].end()) return entry->second;
  }
  return nullptr;
}

// Grants of peers that have no connection and no region are dropped first, so that former peers take no
// memory.
std::shared_ptr<Domain::Grants> Domain::grants_of(const PeerName& peer) {
  std::erase_if(peers_, [](const auto& entry) {
    const auto& maps = entry.second->by_key;
    return entry.second.use_count() == 1 &&
           std::all_of(maps.begin(), maps.end(), [](const auto& map) { return map.empty(); });
  });
  std::shared_ptr<Grants>& grants = peers_[peer];
  if (grants == nullptr) grants = std::make_shared<Grants>();
  return grants;
}

// A region that is granted to a peer without a connection waits in its Grants for the connection.
Status Domain::grant(const RegionKey& region, const PeerName& peer) {
  PackedKey key;
  const Region* found = from_region_key(region, key) ? region_of(key) : nullptr;
  if (found == nullptr) return {Code::kInvalidArgument, "memory that is not registered cannot be granted"};
  const std::shared_ptr<Grants> grants = grants_of(peer);
  for (size_t slot = 0; slot < kMaxNics; ++slot) {
    if (key.keys[slot] != 0) grants->by_key[slot][key.keys[slot]] = found;
  }
  return Status::ok();
}

// The adapter still has the key: a write of that peer that comes later is placed, but its kWritten ends
// the connection. Only remove_region() makes the adapter refuse it.
void Domain::revoke(const RegionKey& region, const PeerName& peer) {
  PackedKey key;
  const auto found = peers_.find(peer);
  if (found == peers_.end() || !from_region_key(region, key)) return;
  for (size_t slot = 0; slot < kMaxNics; ++slot) found->second->by_key[slot].erase(key.keys[slot]);
}

// The maps are cleared before the memory is deregistered, so nothing refers to the region when it is
// erased.
bool Domain::remove_region(const RegionKey& region) {
  PackedKey key;
  if (!from_region_key(region, key)) return true;
  const Region* found = region_of(key);
  if (found == nullptr) return true;
  for (const auto& [peer, grants] : peers_) revoke(region, peer);
  for (size_t slot = 0; slot < kMaxNics; ++slot) {
    if (found->registrations[slot] != nullptr) by_key_[slot].erase(found->registrations[slot]->rkey);
  }
  // Several regions may begin at the same address: the one that is meant is found by its identity.
  for (auto entry = regions_.lower_bound(found->base); entry != regions_.end(); ++entry) {
    if (&entry->second != found) continue;
    const bool gone = release(entry->second);
    regions_.erase(entry);
    return gone;
  }
  return true;
}

// The registrations are forgotten even if an adapter refuses, as there is nothing else to do with them.
bool Domain::release(Region& region) {
  bool gone = true;
  for (ibv_mr*& registration : region.registrations) {
    if (registration != nullptr && verbs_->deregister_memory(registration) != 0) gone = false;
    registration = nullptr;
  }
  return gone;
}

// Called for each write, so it is one look-up.
bool Domain::find_source(uint16_t slot, const void* data, size_t bytes, Source& source) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  // Regions rarely overlap, so only the last one that begins at or before `data` is looked at. If that one is
  // too short, the caller registers the memory for the one write.
  auto entry = regions_.upper_bound(begin);
  if (entry == regions_.begin()) return false;
  const Region& region = std::prev(entry)->second;
  const auto offset = static_cast<size_t>(begin - region.base);
  if (bytes > region.bytes || offset > region.bytes - bytes || region.registrations[slot] == nullptr)
    return false;
  source = {region.iova + offset, region.registrations[slot]->lkey};
  return true;
}

const std::byte* Domain::Grants::find_written(uint16_t slot, uint32_t key, uint64_t address,
                                              size_t bytes) const {
  const auto entry = by_key[slot].find(key);
  if (entry == by_key[slot].end()) return nullptr;
  const Region& region = *entry->second;
  // Foreign numbers: no sum of them is made before it is known to be small.
  if (address < region.iova || bytes > region.bytes || address - region.iova > region.bytes - bytes)
    return nullptr;
  return region.base + (address - region.iova);
}

}  // namespace hdt::transport::rdma
