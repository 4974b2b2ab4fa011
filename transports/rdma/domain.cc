// domain.cc: see domain.h.
#include "transports/rdma/domain.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace hdt::transport::rdma {

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

bool Domain::remove_region(const RegionKey& region) {
  PackedKey key;
  if (!from_region_key(region, key)) return true;
  const Region* found = nullptr;
  for (size_t slot = 0; slot < kMaxNics && found == nullptr; ++slot) {
    const auto entry = by_key_[slot].find(key.keys[slot]);
    if (entry != by_key_[slot].end()) found = entry->second;
  }
  if (found == nullptr) return true;
  for (size_t slot = 0; slot < kMaxNics; ++slot) {
    if (found->registrations[slot] != nullptr) by_key_[slot].erase(found->registrations[slot]->rkey);
  }
  for (auto entry = regions_.lower_bound(found->base); entry != regions_.end(); ++entry) {
    if (&entry->second != found) continue;
    const bool gone = release(entry->second);
    regions_.erase(entry);
    return gone;
  }
  return true;
}

bool Domain::release(Region& region) {
  bool gone = true;
  for (ibv_mr*& registration : region.registrations) {
    if (registration != nullptr && verbs_->deregister_memory(registration) != 0) gone = false;
    registration = nullptr;
  }
  return gone;
}

bool Domain::find_source(uint16_t slot, const void* data, size_t bytes, Source& source) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  // Regions rarely overlap: the last one that begins at or before `data`.
  auto entry = regions_.upper_bound(begin);
  if (entry == regions_.begin()) return false;
  const Region& region = std::prev(entry)->second;
  const auto offset = static_cast<size_t>(begin - region.base);
  if (bytes > region.bytes || offset > region.bytes - bytes || region.registrations[slot] == nullptr)
    return false;
  source = {region.iova + offset, region.registrations[slot]->lkey};
  return true;
}

const std::byte* Domain::find_written(uint16_t slot, uint32_t key, uint64_t address, size_t bytes) const {
  const auto entry = by_key_[slot].find(key);
  if (entry == by_key_[slot].end()) return nullptr;
  const Region& region = *entry->second;
  // Foreign numbers: no sum of them is made before it is known to be small.
  if (address < region.iova || bytes > region.bytes || address - region.iova > region.bytes - bytes)
    return nullptr;
  return region.base + (address - region.iova);
}

}  // namespace hdt::transport::rdma
