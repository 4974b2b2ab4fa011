// group_services.h: what a group needs of its engine. One object for each group; the engine makes it, the
// group owns it. All functions are called on the engine's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/shared_memory.h"
#include "base/status.h"
#include "daemon/protocol/node.h"
#include "transports/transport.h"

namespace hdt::daemon {

class GroupServices {
 public:
  virtual ~GroupServices() = default;
  // Memory `number` of the process of local rank `local`; null if that process shares no such memory in this
  // group.
  virtual std::shared_ptr<SharedMemory> find_memory(uint32_t local, uint64_t number) = 0;
  // Registers the memory with the engine's backend of that number, and ends a registration. Errors are those
  // of the backend.
  virtual Result<transport::RegionKey> register_memory(const SharedMemory& memory, uint32_t backend) = 0;
  virtual void deregister_memory(const transport::RegionKey& key, uint32_t backend) = 0;
  // Lets a node write to the region, and ends that. Nobody else may write to it.
  virtual Status grant(const transport::RegionKey& key, uint32_t backend, const NodeId& node) = 0;
  virtual void revoke(const transport::RegionKey& key, uint32_t backend, const NodeId& node) = 0;
  // The group works again with that node, which had been suspended.
  virtual void on_back(uint32_t node) = 0;
};

}  // namespace hdt::daemon
