// allocations.h: the memory of hdtMemAlloc: which process has it, and under which number the daemon of a
// session knows it. A number holds for one group: memory that is used in several groups has several.
//
// At its end each allocation has a Trailer that users do not see. Ranks that have mapped the memory find
// there that it was freed.
#pragma once

#include <atomic>
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

// The allocations of this process. Any thread. mutex_ is held while the daemon is asked for a number, so
// it comes before everything in Session, and after Communicator::mutex_.
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

  // Where a buffer is, as other ranks of a group are told: the memory's number for this group, and the
  // offset in bytes.
  struct Place {
    uint64_t memory = 0;  // 0: not memory of hdtMemAlloc
    uint64_t offset = 0;
  };
  // The place of [pointer, pointer + bytes) for the group with `handle` of this session; memory 0 if it
  // is not wholly in one allocation. The first use in a group shares the memory, which is a question to
  // the daemon; its errors are those of Session::share().
  Result<Place> locate(const void* pointer, size_t bytes, const std::shared_ptr<Session>& session,
                       uint32_t handle);
  // To be called before that group is left: the numbers that were given for it end with the seat.
  void forget_group(const std::shared_ptr<Session>& session, uint32_t handle);

 private:
  // One allocation, and the groups in which it is shared.
  struct Allocation {
    SharedMemory memory;
    struct Shared {
      // Expired: the session has ended, and the number with it.
      std::weak_ptr<Session> session;
      uint32_t handle;
      uint64_t number;
    };
    std::vector<Shared> shared;
  };
  std::mutex mutex_;
  // By the address of its first byte. Ranges do not overlap.
  std::map<const std::byte*, Allocation> by_start_;
};

}  // namespace hdt::client
