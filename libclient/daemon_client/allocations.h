// allocations.h: the memory of hdtMemAlloc: which process has it, and under which number the daemon of a
// session knows it. A number holds for one group: memory that is used in several groups has several.
//
// At its end each allocation has a Trailer that users do not see. Ranks that have mapped the memory find
// there that it was freed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/shared_memory.h"
#include "libclient/daemon_client/session.h"

namespace hdt::client {

// Behind the user's bytes, on a cache line of its own.
struct alignas(64) Trailer {
  // 1: the owner has freed the memory. Stored with release.
  std::atomic<uint32_t> freed{0};
};

// `memory` must be of hdtMemAlloc, and at least as large as a Trailer; the caller has checked that of
// memory of others.
inline Trailer& trailer_of(const SharedMemory& memory) {
  return *reinterpret_cast<Trailer*>(memory.data() + memory.size() - sizeof(Trailer));
}

// The allocations of this process. Any thread. Questions and messages go to the daemon without mutex_: an
// answer that does not come holds up the threads that need it, and no others. mutex_ comes after
// Communicator::mutex_ and before Session's.
class Allocations {
 public:
  // The only one. In a forked copy of the process it is left as it is.
  static Allocations& instance();

  // Zeroed memory of at least `bytes`, aligned to a page. kInvalidArgument: `bytes` is too large.
  // kSystem: the system refuses it.
  Result<void*> allocate(size_t bytes);
  // kInvalidArgument: allocate() did not give this pointer, or it is freed already. No operation may be
  // using the memory.
  Status free(void* pointer);

  // Where a buffer is, as other ranks of a group learn it: the memory's number for this group, and the
  // offset in bytes.
  struct Place {
    uint64_t memory = 0;  // 0: not memory of hdtMemAlloc
    uint64_t offset = 0;
  };
  // The place of [pointer, pointer + bytes) for the group with `handle` of this session; memory 0 if it
  // is not wholly in one allocation. The first use in a group shares the memory, which is a question to
  // the daemon; its errors are those of Session::share(). A thread that needs a number for which another
  // one is asking waits for that answer.
  Result<Place> locate(const void* pointer, size_t bytes, const std::shared_ptr<Session>& session,
                       uint32_t handle);
  // To be called before that group is left: the numbers that were given for it end with the seat.
  void forget_group(const std::shared_ptr<Session>& session, uint32_t handle);

 private:
  // One allocation, and the groups in which it is shared.
  struct Allocation {
    // A thread that asks the daemon needs the descriptor until it has its answer.
    std::shared_ptr<SharedMemory> memory;
    struct Shared {
      // Expired: the session has ended, and the number with it.
      std::weak_ptr<Session> session;
      uint32_t handle;
      // 0: a thread asks the daemon for it.
      uint64_t number;
      // Without asking for its lock: the last owner of a session must not end it under mutex_.
      bool is_of(const std::shared_ptr<Session>& other, uint32_t other_handle) const {
        return handle == other_handle && !session.owner_before(other) && !other.owner_before(session);
      }
    };
    std::vector<Shared> shared;
    Shared* find(const std::shared_ptr<Session>& session, uint32_t handle);
  };
  using Found = std::map<const std::byte*, Allocation>::iterator;
  // The allocation in which [start, start + bytes) is; end(): there is none. mutex_ is held.
  Found find(const std::byte* start, size_t bytes);
  std::mutex mutex_;
  // Notified when a question to a daemon is over.
  std::condition_variable answered_;
  // By the address of its first byte. Ranges do not overlap.
  std::map<const std::byte*, Allocation> by_start_;
};

}  // namespace hdt::client
