// registration.cc: see registration.h.
#include "daemon/links/registration.h"

#include "daemon/links/peer_link.h"

namespace hdt::daemon {

// Deregistered before the memory goes; the owner keeps it for longer than this object.
Registration::~Registration() {
  for (const auto& [backend, key] : keys_) devices_.of_backend(backend).deregister_memory(key);
}

// The same key for all nodes that are reached over the backend; each of them is granted by itself. Granting
// twice is harmless.
Result<transport::RegionKey> Registration::key(uint32_t backend, const NodeId& node) {
  transport::Device& device = devices_.of_backend(backend);
  auto known = keys_.find(backend);
  if (known == keys_.end()) {
    // The place of the key is made first, and moved without taking memory: a registration whose key had no
    // place would never end.
    std::map<uint32_t, transport::RegionKey> fresh;
    const auto place = fresh.emplace(backend, transport::RegionKey{}).first;
    auto made = device.register_memory(data_, bytes_, fd_);
    if (!made.is_ok()) return made;
    place->second = made.take();
    known = keys_.insert(fresh.extract(place)).position;
  }
  HDT_RETURN_IF_ERROR(device.grant(known->second, writer(node)));
  return known->second;
}

// For every backend, as it is not recorded over which of them the node was reached.
void Registration::revoke(const NodeId& node) {
  for (const auto& [backend, key] : keys_) devices_.of_backend(backend).revoke(key, writer(node));
}

}  // namespace hdt::daemon
