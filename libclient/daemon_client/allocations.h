// allocations.h: the memory of hdtMemAlloc: who has it, and under which number a session's daemon knows it.
//
// At its end each allocation has a Trailer that users do not see: ranks that have mapped it find there that
// it is freed.
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

struct alignas(64) Trailer {
  std::atomic<uint32_t> freed{0};
};

inline Trailer& trailer_of(const SharedMemory& memory) {
  return *reinterpret_cast<Trailer*>(memory.data() + memory.size() - sizeof(Trailer));
}

class Allocations {
 public:
  static Allocations& instance();

  Result<void*> allocate(size_t bytes);
  Status free(void* pointer);

  struct Place {
    uint64_t memory = 0;  // 0: not memory of hdtMemAlloc
    uint64_t offset = 0;
  };
  // Where [pointer, pointer + bytes) is, as others of the group with `handle` are told. Shares it on first
  // use in that group.
  Result<Place> locate(const void* pointer, size_t bytes, const std::shared_ptr<Session>& session,
                       uint32_t handle);
  // Before that group is left.
  void forget_group(const std::shared_ptr<Session>& session, uint32_t handle);

 private:
  struct Allocation {
    SharedMemory memory;
    struct Shared {
      std::weak_ptr<Session> session;
      uint32_t handle;
      uint64_t number;
    };
    std::vector<Shared> shared;
  };
  std::mutex mutex_;
  std::map<const std::byte*, Allocation> by_start_;
};

}  // namespace hdt::client
