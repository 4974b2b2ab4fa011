// Uses of memory by calls, its registration with backends, and which nodes may write to it.
#include "daemon/group/direct_memory.h"

namespace hdt::daemon {

// Null, without an error: the number is not known, or is another rank's. Each success needs one
// release(); until then the memory stays mapped, whatever the process does with its own mapping.
Result<const DirectMemory::Use*> DirectMemory::acquire(uint32_t local, uint64_t number) {
  auto found = entries_.find(number);
  // Known numbers are found without the engine: what was acquired once stays mapped until it is
  // dropped.
  if (found == entries_.end()) {
    auto memory = services_->find_memory(local, number);
    if (memory == nullptr) return static_cast<const Use*>(nullptr);
    // The mapping is the daemon's own, shared with the session's entry: it outlives the session if a
    // call still uses it.
    Entry entry;
    entry.local = local;
    entry.use = {memory->data(), memory->size()};
    entry.memory = std::move(memory);
    found = entries_.emplace(number, std::move(entry)).first;
  }
  // The number is another rank's: as if it were not known.
  if (found->second.local != local) return static_cast<const Use*>(nullptr);
  ++found->second.users;
  return &found->second.use;
}

// Registered as late as possible: most memory is used over one backend, and a registration may pin its
// pages.
Result<transport::RegionKey> DirectMemory::key_for(uint64_t number, uint32_t backend, const NodeId& node) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return Status(Code::kInternal, "memory that no call has acquired has no key");
  // A region is registered with a backend when the first node that is reached over that backend needs
  // its key, ...
  auto known = found->second.keys.find(backend);
  if (known == found->second.keys.end()) {
    // The place of the key is made first, and moved without taking memory: a registration whose key had no
    // place would never end.
    std::map<uint32_t, Entry::Enlisted> fresh;
    const auto place = fresh.emplace(backend, Entry::Enlisted{}).first;
    auto key = services_->register_memory(*found->second.memory, backend);
    if (!key.is_ok()) return key;
    place->second.key = key.take();
    known = found->second.keys.insert(fresh.extract(place)).position;
  }
  Entry::Enlisted& enlisted = known->second;
  // ... and each node is allowed to write to it before it gets the key.
  if (!enlisted.granted.contains(node)) {
    HDT_RETURN_IF_ERROR(services_->grant(enlisted.key, backend, node));
    enlisted.granted.insert(node);
  }
  return enlisted.key;
}

// The node has no link to this one any more. The registration stays, as other nodes may use it.
void DirectMemory::revoke(const NodeId& node) {
  for (auto& [number, entry] : entries_) {
    for (auto& [backend, enlisted] : entry.keys) {
      if (enlisted.granted.erase(node) > 0) services_->revoke(enlisted.key, backend, node);
    }
  }
}

// The keys are worth nothing afterwards: a write that names one of them is refused by the backend.
void DirectMemory::withdraw(const Entry& entry) {
  for (const auto& [backend, enlisted] : entry.keys) services_->deregister_memory(enlisted.key, backend);
}

// A number that is not known is no error.
void DirectMemory::release(uint64_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end() || --found->second.users > 0 || !found->second.dropped) return;
  forget(found);
}

// The process shares the memory no longer. Calls that use it end as if nothing had happened; the last one
// of them frees it.
void DirectMemory::drop(uint64_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  found->second.dropped = true;
  if (found->second.users == 0) forget(found);
}

// Deregistered before the mapping goes, so that no backend can write into memory that is not there.
void DirectMemory::forget(std::map<uint64_t, Entry>::iterator entry) {
  withdraw(entry->second);
  entries_.erase(entry);
}

// By the destructor: nothing of a group stays registered after it.
void DirectMemory::clear() {
  for (auto& [number, entry] : entries_) withdraw(entry);
  entries_.clear();
}

}  // namespace hdt::daemon
