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
  // Memory that a peer has written to by (key, address) of the adapter in `slot`; nullptr if that is not ours.
  const std::byte* find_written(uint16_t slot, uint32_t key, uint64_t address, size_t bytes) const;

  std::set<RdmaDevice*> devices;

 private:
  struct Region {
    std::byte* base = nullptr;
    size_t bytes = 0;
    uint64_t iova = 0;
    std::array<ibv_mr*, kMaxNics> registrations{};
  };
  bool release(Region& region);

  std::shared_ptr<Verbs> verbs_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::multimap<const std::byte*, Region> regions_;  // by base
  std::array<std::map<uint32_t, const Region*>, kMaxNics> by_key_;
};

}  // namespace hdt::transport::rdma
