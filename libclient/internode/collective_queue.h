// collective_queue.h: this rank's part of the collectives of a group of several nodes, on the node's shared
// memory, done by whichever of its threads is at hand. Three cursors walk over the pieces of all queued
// calls, in call order:
//   stage   copy the contribution in              (needs: the slot is free)
//   reduce  combine a share of all local ones     (needs: all local ranks have staged)
//   take    copy the result out                   (needs: all have reduced, or the daemon has exchanged)
// so the stages of successive pieces, and of successive calls, overlap. ipc/segment.h has the memory's rules.
// Not thread-safe: the communicator's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "libclient/common/call_queue.h"
#include "libclient/daemon_client/allocations.h"
#include "libclient/internode/slot_stages.h"

namespace hdt::client {

class CollectiveQueue : public CallQueue {
 public:
  // Where a buffer is in memory that this process shares; memory 0: nowhere.
  using Locate = std::function<Result<Allocations::Place>(const void*, size_t)>;
  CollectiveQueue(const NodeAccess& access, Locate locate) : access_(access), locate_(std::move(locate)) {}

  void push(const session::Call& call, const void* send, void* recv,
            std::shared_ptr<Operation> operation) override;
  bool progress() override;
  bool empty() const override { return calls_.empty(); }
  const Operation* oldest() const override {
    return calls_.empty() ? nullptr : calls_.front().operation.get();
  }
  uint64_t oldest_sequence() const override { return calls_.front().sequence; }
  const session::Call& oldest_call() const override { return calls_.front().call; }
  void fail_all(const Status& status) override;

 private:
  struct Entry {
    uint64_t sequence;
    session::Call call;
    session::Plan plan;
    uint64_t first_piece;
    const std::byte* send;
    std::byte* recv;
    std::shared_ptr<Operation> operation;
    session::Exposure where;
    uint64_t record = 0;  // ipc/recorder.h
    bool staged = true;   // the contribution goes through the slots
    bool placed = false;  // else: an allgather's is copied to its place in the recvbuf
    bool taken = true;    // the result does
  };
  struct Cursor {
    uint64_t piece = 0;
    uint64_t sequence = 0;  // of the call the piece belongs to
  };

  Entry* entry_at(const Cursor& cursor);
  void advance(Cursor& cursor, const Entry& entry);
  void publish_calls();
  bool stage();
  bool reduce();
  bool take();
  void advance_to_end(Cursor& cursor, const Entry& entry);
  // Finds out which buffers the daemon can use in place, and prepares them.
  Status place_buffers(Entry& entry) const;
  void place(const SlotPiece& piece) const;
  void take_in_place(const Entry& entry) const;
  bool compare_calls(const Entry& entry);
  SlotPiece slot_piece(const Entry& entry, uint64_t piece) const;

  const NodeAccess& access_;
  Locate locate_;
  std::deque<Entry> calls_;
  uint64_t next_sequence_ = 0;
  uint64_t next_piece_ = 0;
  uint64_t published_ = 0;
  uint64_t compared_ = 0;  // calls below agree on this node
  Cursor stage_, reduce_, take_;
};

}  // namespace hdt::client
