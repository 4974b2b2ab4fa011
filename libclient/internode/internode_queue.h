// internode_queue.h: the inter-node queue: this rank's part of the collectives of a group of several
// nodes, on the node's shared memory. Whichever thread of the rank is at hand does the work. Three
// cursors walk over the chunks of all queued calls, in call order:
//   copy in   the contribution              (needs: the slot is free)
//   reduce    a share of all local ones     (needs: all local ranks have staged)
//   copy out  the result                      (needs: all have reduced, and the daemon has exchanged)
// So the stages of successive chunks, and of successive calls, overlap. ipc/segment.h has the rules of
// the memory; daemon/group/chunk_runner.h does the part between reduce and copy out.
//
// If this rank is alone on its node and a buffer lies in memory of hdtMemAlloc, the daemon uses the
// buffer in place, and the stage that would copy it is skipped. The cursors then jump over all chunks of
// the call.
//
// It is not thread-safe: the communicator's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "ipc/buffer_use.h"
#include "libclient/common/call_queue.h"
#include "libclient/daemon_client/allocations.h"
#include "libclient/internode/slot_stages.h"

namespace hdt::client {

// Owned by the Communicator of a group of several nodes. A call is published in the ring of calls
// (RankState::calls) when the call kCallRing before it is complete, and compared with those of the other
// local ranks before anything is combined. Calls of other nodes are compared by the daemons.
class InternodeQueue : public CallQueue {
 public:
  // Where a buffer is in memory that this process shares; memory 0: in none. May ask the daemon.
  using Locate = std::function<Result<Allocations::Place>(const void*, size_t)>;
  // `access` must outlive the queue.
  InternodeQueue(const NodeAccess& access, Locate locate) : access_(access), locate_(std::move(locate)) {}

  void push(const ipc::Call& call, const void* send, void* recv,
            std::shared_ptr<Operation> operation) override;
  bool progress() override;
  bool empty() const override { return calls_.empty(); }
  const Operation* oldest() const override {
    return calls_.empty() ? nullptr : calls_.front().operation.get();
  }
  uint64_t oldest_sequence() const override { return calls_.front().sequence; }
  const ipc::Call& oldest_call() const override { return calls_.front().call; }
  void fail_all(const Status& status) override;

 private:
  // A call that is not complete.
  struct Entry {
    uint64_t sequence;
    ipc::Call call;
    ipc::Partition plan;
    // The number of its first chunk in the life of the group.
    uint64_t first_chunk;
    // The user's buffers; null if this rank has none.
    const std::byte* send;
    std::byte* recv;
    std::shared_ptr<Operation> operation;
    // Which buffers the daemon uses in place. Published with the call.
    ipc::Exposure where;
    // The number of its record (ipc/recorder.h).
    uint64_t record = 0;
    // The use of the two buffers, as the daemon computes it, too.
    ipc::CallBuffers use = {};
  };
  // The next chunk of a stage, and the call to which it belongs.
  struct Cursor {
    uint64_t chunk = 0;
    uint64_t sequence = 0;
  };

  // The cursor's call; null: it is not published yet.
  Entry* entry_at(const Cursor& cursor);
  // Moves the cursor to the next chunk.
  void advance(Cursor& cursor, const Entry& entry);
  // Publishes queued calls for which there is room.
  void publish_calls();
  // Each moves its cursor by one chunk, or over one call in place, if that is possible. True if so.
  bool copy_in();
  bool reduce();
  bool copy_out();
  // Moves the cursor behind the call.
  void advance_to_end(Cursor& cursor, const Entry& entry);
  // Counts the buffers of a call that has ended (RankState::buffer_bytes).
  void count_buffers(const Entry& entry) const;
  // Finds the buffers that the daemon uses in place, and sets `where` and `use`.
  Status place_buffers(Entry& entry) const;
  // Copies one chunk of this rank's contribution to its place in the recvbuf.
  void place(const SlotChunk& chunk) const;
  // Finishes a result that the daemon has put into the recvbuf.
  void copy_out_in_place(const Entry& entry) const;
  // True when all local ranks have made the same call; a difference fails the group.
  bool compare_calls(const Entry& entry);
  // Chunk `chunk` of the group's life, which must be one of the call's.
  SlotChunk slot_chunk(const Entry& entry, uint64_t chunk) const;

  const NodeAccess& access_;
  Locate locate_;
  std::deque<Entry> calls_;
  // Calls and chunks pushed so far, and calls published.
  uint64_t next_sequence_ = 0;
  uint64_t next_chunk_ = 0;
  uint64_t published_ = 0;
  // Calls below agree on this node.
  uint64_t compared_ = 0;
  // copy_out_ <= reduce_ <= copy_in_, in chunks.
  Cursor copy_in_, reduce_, copy_out_;
};

}  // namespace hdt::client
