// shared_regions.h: what the devices of one software backend share. That is registered memory, because any
// rail of a link must be able to carry any fragment, and the strangers among their connections, because the
// limits hold for the Backend.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <set>

#include "base/status.h"
#include "transports/support/region_table.h"
#include "transports/support/strangers.h"

namespace hdt::transport {

// `DeviceType` has on_withdrawn(uint64_t region, const RegionTable* of). It is called when the peer with
// table `of`, or every peer if `of` is null, may not write to the region any more. The device then closes the
// connections that are in the middle of such a write. Devices enter and leave `devices` themselves.
template <typename DeviceType>
struct SharedRegions {
  RegionGrants regions;
  std::set<DeviceType*> devices;
  Strangers strangers;

  // Registers memory under a random key of 64 bits, which nobody can guess. kInvalidArgument for no memory,
  // kSystem if the kernel gives no random number.
  Result<RegionKey> add(void* base, size_t bytes) {
    if (base == nullptr || bytes == 0) return Status(Code::kInvalidArgument, "cannot register no memory");
    uint64_t key = 0;
    do {
      if (::getrandom(&key, sizeof key, 0) != sizeof key)
        return Status::from_errno("cannot draw a key", errno);
    } while (key == 0 || !regions.add(key, base, bytes));
    return to_region_key(key);
  }

  // The table changes before the devices are called: a write that a device looks up from now on is refused.
  void remove(const RegionKey& key) {
    const uint64_t region = from_region_key(key);
    regions.remove(region);
    for (DeviceType* device : devices) device->on_withdrawn(region, nullptr);
  }

  Status grant(const RegionKey& key, const PeerName& peer) {
    if (regions.grant(from_region_key(key), peer)) return Status::ok();
    return {Code::kInvalidArgument, "memory that is not registered cannot be granted"};
  }

  void revoke(const RegionKey& key, const PeerName& peer) {
    const uint64_t region = from_region_key(key);
    const RegionGrants::Table table = regions.revoke(region, peer);
    if (table == nullptr) return;
    for (DeviceType* device : devices) device->on_withdrawn(region, table.get());
  }
};

}  // namespace hdt::transport
