// segment_keys.h: the registrations of groups' segments with the engine's backends, and who may write there,
// until the group has ended.
//
// Owner: Engine; the engine's thread.
#pragma once

#include <memory>
#include <unordered_map>

#include "base/shared_memory.h"
#include "daemon/group/engine_group.h"
#include "daemon/links/devices.h"
#include "daemon/links/registration.h"

namespace hdt::daemon {

class SegmentKeys {
 public:
  // `devices` must outlive this object.
  explicit SegmentKeys(Devices& devices) : devices_(devices) {}

  // A group that is being made, and the memory of its segment. It comes before the group's other calls.
  void add(uint64_t group, std::shared_ptr<SharedMemory> memory);
  // The key with which the node may write to the segment over that backend. Errors are those of the backend.
  Result<transport::RegionKey> key(EngineGroup& group, uint32_t backend, const NodeId& node);
  // No link of the group leads to the node any more: it may write to nothing of the group.
  void withdraw(EngineGroup& group, const NodeId& node);
  // The group has ended, or was not made.
  void end(uint64_t group) { segments_.erase(group); }

 private:
  struct Segment {
    std::shared_ptr<SharedMemory> memory;
    std::unique_ptr<Registration> registration;  // from the first key on
  };
  Devices& devices_;
  std::unordered_map<uint64_t, Segment> segments_;  // by group
};

}  // namespace hdt::daemon
