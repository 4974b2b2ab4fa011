// segment_keys.cc: see segment_keys.h.
#include "daemon/group/segment_keys.h"

namespace hdt::daemon {

// Before the group exists, so that the memory is there whatever its making asks for.
void SegmentKeys::add(uint64_t group, std::shared_ptr<SharedMemory> memory) {
  segments_[group].memory = std::move(memory);
}

// Only the data part of the segment is registered. The rest, with the ranks' states and the journals, is
// out of every peer's reach.
Result<transport::RegionKey> SegmentKeys::key(EngineGroup& group, uint32_t backend, const NodeId& node) {
  Segment& segment = segments_.at(group.id());
  if (segment.registration == nullptr) {
    segment.registration = std::make_unique<Registration>(devices_, group.segment().data(),
                                                          group.segment().data_bytes(), segment.memory->fd());
  }
  return segment.registration->key(backend, node);
}

// The user's own buffers go together with the segment: a node without a link may write to neither.
void SegmentKeys::withdraw(EngineGroup& group, const NodeId& node) {
  const auto found = segments_.find(group.id());
  if (found != segments_.end() && found->second.registration != nullptr)
    found->second.registration->revoke(node);
  group.revoke_direct(node);
}

}  // namespace hdt::daemon
