// peer_memory.cc: a cache of mappings. The owner of an allocation marks it as freed in the allocation's
// own trailer (daemon_client/allocations.h), so nobody has to be sent a message.
#include "libclient/intranode/peer_memory.h"

#include "libclient/daemon_client/allocations.h"

namespace hdt::client {

namespace {

// acquire pairs with the release in Allocations::free().
bool freed(const SharedMemory& memory) {
  return memory.size() >= sizeof(Trailer) && trailer_of(memory).freed.load(std::memory_order_acquire) != 0;
}

}  // namespace

Result<std::byte*> PeerMemory::reach(uint64_t memory, uint64_t offset, uint64_t bytes) {
  // A memory that is freed is never taken for the one that has its number now.
  auto found = mapped_.find(memory);
  if (found != mapped_.end() && freed(found->second)) found = mapped_.end();
  if (found == mapped_.end()) {
    // A new mapping is the occasion to unmap old ones.
    drop_freed();
    auto opened = open_(memory);
    if (!opened.is_ok()) return opened.status();
    found = mapped_.insert_or_assign(memory, opened.take()).first;
  }
  const SharedMemory& mapping = found->second;
  // The trailer is not the user's. The offsets come from another rank, so the sum is not formed before
  // the check.
  const uint64_t size = mapping.size() < sizeof(Trailer) ? 0 : mapping.size() - sizeof(Trailer);
  if (offset > size || bytes > size - offset) {
    return Status(Code::kInternal, "shared memory " + std::to_string(memory) + " has " +
                                       std::to_string(size) + " bytes, a rank exposes up to " +
                                       std::to_string(offset + bytes));
  }
  return mapping.data() + offset;
}

void PeerMemory::drop_freed() {
  std::erase_if(mapped_, [](const auto& entry) { return freed(entry.second); });
}

}  // namespace hdt::client
