// direct_memory.h: the memory of local processes that calls of one group use in place: kept mapped, and
// writable for the other nodes of the group, as long as a call may need it.
//
// A region stays registered until its owner has freed it and no call uses it; in a group that has failed,
// until the group ends: peers may still be writing, and a write outside of registered memory would cost them
// their link.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/shared_memory.h"
#include "daemon/protocol/node.h"
#include "transports/transport.h"

namespace hdt::daemon {

class DirectMemory {
 public:
  struct Services {
    // Memory `number` of the process of local rank `local`; null if it shares no such memory.
    std::function<std::shared_ptr<SharedMemory>(uint32_t local, uint64_t number)> find;
    // With the engine's backend of that number.
    std::function<Result<transport::RegionKey>(const SharedMemory&, uint32_t backend)> enlist;
    std::function<void(const transport::RegionKey&, uint32_t backend)> withdraw;
    // Which node may write to it: nobody else may.
    std::function<Status(const transport::RegionKey&, uint32_t backend, const NodeId&)> grant;
    std::function<void(const transport::RegionKey&, uint32_t backend, const NodeId&)> revoke;
  };

  void set_services(Services services) { services_ = std::move(services); }
  ~DirectMemory() { clear(); }

  struct Use {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  // Null without error: not known (yet). Every success needs a release().
  Result<const Use*> acquire(uint32_t local, uint64_t number);
  void release(uint64_t number);
  // The key for that node, which may write over that backend then, of memory that is acquired.
  Result<transport::RegionKey> key_for(uint64_t number, uint32_t backend, const NodeId& node);
  // The node writes to none of it any more.
  void revoke(const NodeId& node);
  // Its owner shares it no more.
  void drop(uint64_t number);
  void clear();

 private:
  struct Entry {
    std::shared_ptr<SharedMemory> memory;
    uint32_t local = 0;  // whose it is
    Use use;
    struct Enlisted {
      transport::RegionKey key;
      std::set<NodeId> granted;
    };
    std::map<uint32_t, Enlisted> keys;  // by backend
    uint32_t users = 0;
    bool dropped = false;
  };
  void forget(std::map<uint64_t, Entry>::iterator entry);
  void withdraw(const Entry& entry);

  Services services_;
  std::map<uint64_t, Entry> entries_;
};

}  // namespace hdt::daemon
