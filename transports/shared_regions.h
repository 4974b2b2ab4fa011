// shared_regions.h: what the devices opened from one software backend share: registered memory. A region may be written
// through any of them, so that any rail of a link can carry any chunk.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <set>

#include "base/status.h"
#include "transports/region_table.h"

namespace hdt::transport {

// `DeviceType` has on_deregistered(uint64_t region), called when the region is gone.
template <typename DeviceType>
struct SharedRegions {
  RegionTable regions;
  std::set<DeviceType*> devices;

  // By a random key, which nobody guesses.
  Result<RegionKey> add(void* base, size_t bytes) {
    if (base == nullptr || bytes == 0) return Status(Code::kInvalidArgument, "cannot register no memory");
    uint64_t key = 0;
    do {
      if (::getrandom(&key, sizeof key, 0) != sizeof key)
        return Status::from_errno("cannot draw a key", errno);
    } while (key == 0 || !regions.add(key, base, bytes));
    return to_region_key(key);
  }

  void remove(const RegionKey& key) {
    const uint64_t region = from_region_key(key);
    regions.remove(region);
    for (DeviceType* device : devices) device->on_deregistered(region);
  }
};

}  // namespace hdt::transport
