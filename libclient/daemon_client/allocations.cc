// allocations.cc: allocations are shared memory from the beginning (a sealed memfd each), so that they
// can be given to the daemon and to other ranks later without a copy.
#include "libclient/daemon_client/allocations.h"

#include <sys/mman.h>

#include <cerrno>

namespace hdt::client {

namespace {

constexpr size_t kPage = 4096;

}  // namespace

// Never destroyed: a program's threads and static destructors may use, and free, its memory until the process
// ends.
Allocations& Allocations::instance() {
  static auto* const all = new Allocations;
  return *all;
}

Result<void*> Allocations::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return Status(Code::kInvalidArgument, "bytes is too large");
  // Whole pages, with room for the trailer at the end. The memory is zeroed, which is also the trailer's
  // beginning.
  auto memory = SharedMemory::create("hdt-memory", (bytes + sizeof(Trailer) + kPage - 1) / kPage * kPage);
  if (!memory.is_ok()) return memory.status();
  std::byte* start = memory.value().data();
  // The memory is the user's, and a worker that the user forks may use it. SharedMemory keeps its
  // mappings out of children otherwise. The child shares the memory; it has no copy.
  if (::madvise(start, memory.value().size(), MADV_DOFORK) != 0)
    return Status::from_errno("MADV_DOFORK", errno);
  const std::lock_guard lock(mutex_);
  by_start_.emplace(start, Allocation{memory.take(), {}});
  return static_cast<void*>(start);
}

// The order:
// 1. The daemon forgets the numbers, so that nobody opens the memory any more.
// 2. The trailer makes ranks that have mapped the memory drop their mapping.
// 3. The mapping here ends. The pages go with the last mapping.
Status Allocations::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = by_start_.find(static_cast<const std::byte*>(pointer));
  if (found == by_start_.end()) {
    return {Code::kInvalidArgument, "hdtMemFree of memory that hdtMemAlloc did not give"};
  }
  for (const auto& shared : found->second.shared) {
    if (const auto session = shared.session.lock()) session->unshare(shared.number);
  }
  trailer_of(found->second.memory).freed.store(1, std::memory_order_release);
  by_start_.erase(found);
  return Status::ok();
}

Result<Allocations::Place> Allocations::locate(const void* pointer, size_t bytes,
                                               const std::shared_ptr<Session>& session, uint32_t handle) {
  const auto* start = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(mutex_);
  // The last allocation that begins at or before the pointer.
  auto found = by_start_.upper_bound(start);
  if (found == by_start_.begin()) return Place{};
  Allocation& allocation = (--found)->second;
  const auto offset = static_cast<uint64_t>(start - found->first);
  const uint64_t size = allocation.memory.size() - sizeof(Trailer);
  // The trailer is not the user's.
  if (offset >= size || bytes > size - offset) return Place{};
  for (const auto& shared : allocation.shared) {
    if (shared.handle == handle && shared.session.lock() == session) return Place{shared.number, offset};
  }
  // The daemon is asked with mutex_ held: two threads must not share the same memory twice in one group.
  auto number = session->share(handle, allocation.memory);
  if (!number.is_ok()) return number.status();
  allocation.shared.push_back({session, handle, number.value()});
  return Place{number.value(), offset};
}

void Allocations::forget_group(const std::shared_ptr<Session>& session, uint32_t handle) {
  const std::lock_guard lock(mutex_);
  for (auto& [start, allocation] : by_start_) {
    // Numbers of ended sessions are dropped on the way.
    std::erase_if(allocation.shared, [&](const auto& shared) {
      return shared.session.expired() || (shared.handle == handle && shared.session.lock() == session);
    });
  }
  session->forget_shared(handle);
}

}  // namespace hdt::client
