// direct_memory.h: the memory of local processes that calls of one group use in place (memory of
// hdtMemAlloc). It stays mapped, and registered for the other nodes of the group, as long as a call may
// need it.
//
// A region stays registered until its owner has freed it and no call uses it. In a group that has failed
// it stays until the group ends: peers may still be writing, and a write outside of registered memory
// would cost them their link.
//
// Owner: GroupContext; the engine's thread. ChunkRunner acquires memory for calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "base/shared_memory.h"
#include "daemon/group/group_services.h"
#include "daemon/protocol/node.h"
#include "transports/transport.h"

namespace hdt::daemon {

// A table of memories by number. A number is drawn by the daemon, is random, and names one memory in one
// group (docs/design/communicator.md, "Who a process is").
class DirectMemory {
 public:
  // `services` must outlive this object. To be called before anything else.
  void set_services(GroupServices& services) { services_ = &services; }
  ~DirectMemory() { clear(); }

  // Where the memory is mapped here.
  struct Use {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  // Begins a use by a call. Null without an error: the number is not known, or is another rank's.
  // Every use that is not null needs a release().
  Result<const Use*> acquire(uint32_t local, uint64_t number);
  // Ends one use.
  void release(uint64_t number);
  // The key with which that node may write to acquired memory over that backend. Registers the memory
  // and grants the node access first, if needed. Errors are those of the backend; kInternal: the memory
  // is not acquired.
  Result<transport::RegionKey> key_for(uint64_t number, uint32_t backend, const NodeId& node);
  // The node may not write to any of it any more.
  void revoke(const NodeId& node);
  // The owner does not share it any more. It is unregistered as soon as no call uses it.
  void drop(uint64_t number);
  // Unregisters everything, whether it is used or not. For the end of the group.
  void clear();

 private:
  struct Entry {
    std::shared_ptr<SharedMemory> memory;
    // the local rank whose process shares it
    uint32_t local = 0;
    Use use;
    struct Enlisted {
      transport::RegionKey key;
      std::set<NodeId> granted;
    };
    // by backend: its key, and which nodes may use it
    std::map<uint32_t, Enlisted> keys;
    // calls that use it now
    uint32_t users = 0;
    // drop() was called: forget it with its last user
    bool dropped = false;
  };
  void forget(std::map<uint64_t, Entry>::iterator entry);
  void withdraw(const Entry& entry);

  GroupServices* services_ = nullptr;
  std::map<uint64_t, Entry> entries_;
};

}  // namespace hdt::daemon
