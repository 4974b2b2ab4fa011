#include "daemon/direct_memory.h"

namespace hdt::daemon {

Result<const DirectMemory::Use*> DirectMemory::acquire(uint32_t local, uint32_t number) {
  auto found = entries_.find(number);
  if (found == entries_.end()) {
    auto memory = services_.find(local, number);
    if (memory == nullptr) return static_cast<const Use*>(nullptr);
    auto key = services_.enlist(*memory);
    if (!key.is_ok()) return key.status();
    Entry entry;
    entry.use = {memory->data(), memory->size(), key.value()};
    entry.memory = std::move(memory);
    found = entries_.emplace(number, std::move(entry)).first;
  }
  ++found->second.users;
  return &found->second.use;
}

void DirectMemory::release(uint32_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end() || --found->second.users > 0 || !found->second.dropped) return;
  forget(found);
}

void DirectMemory::drop(uint32_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  found->second.dropped = true;
  if (found->second.users == 0) forget(found);
}

void DirectMemory::forget(std::map<uint32_t, Entry>::iterator entry) {
  services_.withdraw(entry->second.use.key);
  entries_.erase(entry);
}

void DirectMemory::clear() {
  for (auto& [number, entry] : entries_) services_.withdraw(entry.use.key);
  entries_.clear();
}

}  // namespace hdt::daemon
