// allocations.cc: allocations are shared memory from the beginning (a sealed memfd each), so that they
// can be given to the daemon and to other ranks later without a copy.
#include "libclient/daemon_client/allocations.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/contained.h"
#include "libclient/common/out_of_memory.h"

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
  auto shared = std::make_shared<SharedMemory>(memory.take());
  std::byte* start = shared->data();
  // The memory is the user's, and a worker that the user forks may use it. SharedMemory keeps its
  // mappings out of children otherwise. The child shares the memory; it has no copy.
  if (::madvise(start, shared->size(), MADV_DOFORK) != 0) return Status::from_errno("MADV_DOFORK", errno);
  const std::lock_guard lock(mutex_);
  by_start_.emplace(start, Allocation{std::move(shared), {}});
  return static_cast<void*>(start);
}

// The order:
// 1. Nobody here finds the memory any more.
// 2. The daemon forgets the numbers, so that nobody opens the memory any more.
// 3. The trailer makes ranks that have mapped the memory drop their mapping.
// 4. The mapping here ends. The pages go with the last mapping.
Status Allocations::free(void* pointer) {
  decltype(by_start_)::node_type freed;
  {
    const std::lock_guard lock(mutex_);
    freed = by_start_.extract(static_cast<const std::byte*>(pointer));
  }
  if (freed.empty()) return {Code::kInvalidArgument, "hdtMemFree of memory that hdtMemAlloc did not give"};
  Allocation& allocation = freed.mapped();
  for (const auto& shared : allocation.shared) {
    // A number that is still to come is given back by the thread that asks for it.
    if (shared.number == 0) continue;
    if (const auto session = shared.session.lock()) session->unshare(shared.number);
  }
  trailer_of(*allocation.memory).freed.store(1, std::memory_order_release);
  return Status::ok();
}

Allocations::Allocation::Shared* Allocations::Allocation::find(const std::shared_ptr<Session>& session,
                                                               uint32_t handle) {
  const auto found = std::find_if(shared.begin(), shared.end(),
                                  [&](const Shared& one) { return one.is_of(session, handle); });
  return found == shared.end() ? nullptr : &*found;
}

Allocations::Found Allocations::find(const std::byte* start, size_t bytes) {
  // The last allocation that begins at or before the pointer.
  auto found = by_start_.upper_bound(start);
  if (found == by_start_.begin()) return by_start_.end();
  --found;
  const auto offset = static_cast<uint64_t>(start - found->first);
  const uint64_t size = found->second.memory->size() - sizeof(Trailer);
  // The trailer is not the user's.
  return offset >= size || bytes > size - offset ? by_start_.end() : found;
}

// 1. The number is known: done. Another thread asks for it: wait, and look again.
// 2. Note that this thread asks, so that no other one shares the same memory in the group a second time.
// 3. Ask, without the lock.
// 4. Note the answer. If the memory was freed or the group was left meanwhile, it is shared no more.
Result<Allocations::Place> Allocations::locate(const void* pointer, size_t bytes,
                                               const std::shared_ptr<Session>& session, uint32_t handle) {
  const auto* start = static_cast<const std::byte*>(pointer);
  std::unique_lock lock(mutex_);
  std::shared_ptr<SharedMemory> memory;
  while (memory == nullptr) {
    const Found found = find(start, bytes);
    if (found == by_start_.end()) return Place{};
    const auto* const known = found->second.find(session, handle);
    if (known == nullptr) {
      found->second.shared.push_back({session, handle, 0});
      memory = found->second.memory;
    } else if (known->number != 0) {
      return Place{known->number, static_cast<uint64_t>(start - found->first)};
    } else {
      answered_.wait(lock);
    }
  }
  lock.unlock();
  Result<uint64_t> number = Status(Code::kSystem, "no memory");
  (void)contained(
      "a question about memory", [&] { number = session->share(handle, *memory); },
      [&](const std::string& /*why*/) { number = out_of_memory(); });
  lock.lock();
  const auto found = by_start_.find(memory->data());
  auto* const noted = found == by_start_.end() || found->second.memory != memory
                          ? nullptr
                          : found->second.find(session, handle);
  if (noted != nullptr && number.is_ok()) {
    noted->number = number.value();
  } else if (noted != nullptr) {
    found->second.shared.erase(found->second.shared.begin() + (noted - found->second.shared.data()));
  }
  answered_.notify_all();
  lock.unlock();
  if (!number.is_ok()) return number.status();
  if (noted != nullptr) return Place{number.value(), static_cast<uint64_t>(start - memory->data())};
  session->unshare(number.value());
  return Place{};
}

void Allocations::forget_group(const std::shared_ptr<Session>& session, uint32_t handle) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [start, allocation] : by_start_) {
      // Numbers of ended sessions are dropped on the way.
      std::erase_if(allocation.shared, [&](const auto& shared) {
        return shared.session.expired() || shared.is_of(session, handle);
      });
    }
    answered_.notify_all();
  }
  session->forget_shared(handle);
}

}  // namespace hdt::client
