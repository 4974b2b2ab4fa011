// domain.h: what the devices of one Backend share: its adapters, the memory registered with each of them,
// what was granted to which peer, and the strangers.
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

// One per Backend, kept alive by it and its devices, used on its thread. It owns the adapters, which stay
// open as long as it lives, even if they were removed: a NIC's slot is never given to another one.
//
// The adapters check keys, not peers: whoever has the key of a region can write to it over any connection
// on which writes are allowed. Grants decide which writes are reported and which end the connection.
class Domain {
 public:
  explicit Domain(std::shared_ptr<Verbs> verbs) : verbs_(std::move(verbs)) {}
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();

  // The libraries, or a simulation of them.
  Verbs& verbs() const { return *verbs_; }
  // The adapter of that name; opened if it is not open yet. kNoBackend for more than kMaxNics.
  Result<Nic*> nic(const std::string& name);

  // Registers memory with every adapter that is open now. A key does not grow: an adapter that is opened
  // later cannot be written to through it. kSystem, with the adapter and the reason, if one of them
  // refuses.
  Result<RegionKey> add_region(void* base, size_t bytes);
  // Deregisters a region, and takes it from all peers. True if every adapter has given it up. False if one
  // refused: then its connections must end. An unknown key is ignored.
  bool remove_region(const RegionKey& key);

  // Where an adapter finds bytes of this process that it is to send.
  struct Source {
    uint64_t address = 0;  // as the adapter counts
    uint32_t key = 0;      // the local key
  };
  // Finds [data, data + bytes) in the registered regions, for the adapter in that slot. False if it is in
  // none of them, or if regions overlap and the wrong one was looked at: the caller then registers it
  // itself.
  bool find_source(uint16_t slot, const void* data, size_t bytes, Source& source) const;

  // A registered region.
  struct Region {
    std::byte* base = nullptr;
    size_t bytes = 0;
    uint64_t iova = 0;                              // the adapter's address of `base`
    std::array<ibv_mr*, kMaxNics> registrations{};  // by NIC slot; null: not registered there
  };
  // The regions granted to one peer, by NIC slot and remote key. Shared with the connections of that peer,
  // so that grant() and revoke() take effect at once.
  struct Grants {
    std::array<std::map<uint32_t, const Region*>, kMaxNics> by_key;
    // The memory that the peer reports to have written. nullptr if the peer may not write there. `key`,
    // `address` and `bytes` are foreign.
    const std::byte* find_written(uint16_t slot, uint32_t key, uint64_t address, size_t bytes) const;
  };
  // For a connection that is being admitted as `peer`.
  std::shared_ptr<Grants> grants_of(const PeerName& peer);
  // See Device: kInvalidArgument for a region that is not registered.
  Status grant(const RegionKey& key, const PeerName& peer);
  void revoke(const RegionKey& key, const PeerName& peer);

  // Devices enter and leave themselves.
  std::set<RdmaDevice*> devices;
  Strangers strangers;

 private:
  // Takes it from all adapters; false if one refused.
  bool release(Region& region);
  // The region of the key; null: it is not registered.
  const Region* region_of(const PackedKey& key) const;

  std::shared_ptr<Verbs> verbs_;
  std::vector<std::unique_ptr<Nic>> nics_;           // by slot
  std::multimap<const std::byte*, Region> regions_;  // by base; the same memory may be registered twice
  std::array<std::map<uint32_t, const Region*>, kMaxNics> by_key_;  // by NIC slot and remote key
  std::map<PeerName, std::shared_ptr<Grants>> peers_;
};

}  // namespace hdt::transport::rdma
