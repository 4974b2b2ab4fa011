// domain.h: what the devices of one Backend share: its adapters, and the memory registered with each of them.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transports/rdma/nic.h"
#include "transports/rdma/region_key.h"
#include "transports/support/strangers.h"

namespace hdt::transport::rdma {

class RdmaDevice;

class Domain {
 public:
  explicit Domain(std::shared_ptr<Verbs> verbs) : verbs_(std::move(verbs)) {}
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();

  Verbs& verbs() const { return *verbs_; }
  // The adapter of that name; opened if it is not yet.
  Result<Nic*> nic(const std::string& name);

  // With every adapter opened so far.
  Result<RegionKey> add_region(void* base, size_t bytes);
  // True if it is gone from every adapter; false if one refused to give it up.
  bool remove_region(const RegionKey& key);

  // Where an adapter finds [data, data + bytes) of this process.
  struct Source {
    uint64_t address = 0;
    uint32_t key = 0;
  };
  // False if no registered region holds all of it.
  bool find_source(uint16_t slot, const void* data, size_t bytes, Source& source) const;

  struct Region {
    std::byte* base = nullptr;
    size_t bytes = 0;
    uint64_t iova = 0;
    std::array<ibv_mr*, kMaxNics> registrations{};
  };
  // What was granted to one peer, by the key of the adapter in each slot.
  struct Grants {
    std::array<std::map<uint32_t, const Region*>, kMaxNics> by_key;
    // Memory that the peer has written to by (key, address); nullptr if it may not write there.
    const std::byte* find_written(uint16_t slot, uint32_t key, uint64_t address, size_t bytes) const;
  };
  // Of a connection that is admitted as `peer`.
  std::shared_ptr<Grants> grants_of(const PeerName& peer);
  Status grant(const RegionKey& key, const PeerName& peer);
  void revoke(const RegionKey& key, const PeerName& peer);

  std::set<RdmaDevice*> devices;
  Strangers strangers;

 private:
  bool release(Region& region);
  // Null: not registered.
  const Region* region_of(const PackedKey& key) const;

  std::shared_ptr<Verbs> verbs_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::multimap<const std::byte*, Region> regions_;  // by base
  std::array<std::map<uint32_t, const Region*>, kMaxNics> by_key_;
  std::map<PeerName, std::shared_ptr<Grants>> peers_;
};

}  // namespace hdt::transport::rdma
