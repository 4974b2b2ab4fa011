// staged_call.h: one call of a group of one node that goes chunk by chunk through the node's slots
// (ipc/segment.h). Three cursors walk over the chunks, so that the stages of successive chunks overlap:
//   copy in   what others reduce      (needs: the slot is free)
//   reduce    a share of the chunk    (needs: all ranks have staged)
//   copy out  the other shares        (needs: all have combined)
// node_stages.h does the work; this class decides when. All ranks of the node go through the same chunks
// in the same order. It is not thread-safe: the communicator's lock is held.
#pragma once

#include <cstdint>

#include "libclient/common/node_access.h"
#include "libclient/intranode/node_stages.h"

namespace hdt::client {

// Owned by the IntranodeQueue, which runs one staged call after the other. Numbers of chunks go on from call
// to call, so a rank that is still in the call before cannot be overtaken: its `done` holds the slots.
class StagedCall {
 public:
  explicit StagedCall(const NodeAccess& access) : access_(access) {}

  // Begins the next call. The one before must be done().
  void begin(const ipc::Call& call, const std::byte* send, std::byte* recv);
  // Does what can be done without waiting. True if anything was done.
  bool progress();
  // This rank has its result. Other ranks may still be copying theirs out of the slots.
  bool done() const { return copy_out_ == end_; }

 private:
  // Chunk `number` of the group's life, which must be one of this call.
  SlotChunk chunk(uint64_t number) const;
  // Each moves one chunk through its stage, if the condition above holds. True if so.
  bool copy_in_one();
  bool reduce_one();
  bool copy_out_one();

  const NodeAccess& access_;
  ipc::Call call_;
  const std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  // Chunks [first_, end_) are this call's, numbered through the life of the group.
  uint64_t first_ = 0, end_ = 0;
  // The next chunk of each stage: copy_out_ <= reduce_ <= copy_in_ <= end_.
  uint64_t copy_in_ = 0, reduce_ = 0, copy_out_ = 0;
};

}  // namespace hdt::client
