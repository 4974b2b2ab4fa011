// call_queue.h: the collectives that a rank has under way in one group, in call order. There are two
// kinds of queue: the intra-node queue (intranode/intranode_queue.h) for groups of one node, and the
// inter-node queue (internode/internode_queue.h) for groups of several. The Communicator owns one of
// them. It is not thread-safe: all functions are called with the communicator's lock held, by whichever
// thread of the rank is at hand.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "ipc/call.h"
#include "libclient/common/node_access.h"
#include "libclient/common/operation.h"

namespace hdt::client {

// Calls complete in the order in which they were pushed. A queue never waits: progress() does what is
// possible now, and the communicator sleeps on the rank's doorbell between two looks.
class CallQueue {
 public:
  virtual ~CallQueue() = default;

  // Appends a call and tries to publish it to the other ranks. The buffers must stay valid until the
  // operation is complete. If the call cannot be made, the queue fails the group. Does not wait for the
  // other ranks.
  virtual void push(const ipc::Call& call, const void* send, void* recv,
                    std::shared_ptr<Operation> operation) = 0;
  // Does what can be done without waiting. True if anything was done. Once the group has failed, it
  // completes at most what had been exchanged before; fail_all() follows then.
  virtual bool progress() = 0;
  virtual bool empty() const = 0;
  // The oldest operation that is not complete; null: there is none. The next two describe it, and may
  // only be called if there is one.
  virtual const Operation* oldest() const = 0;
  virtual uint64_t oldest_sequence() const = 0;
  virtual const ipc::Call& oldest_call() const = 0;
  // Completes all operations with `status`, for a group that has failed. Touches no buffer. Afterwards the
  // queue is empty. Throws std::bad_alloc if there is no memory for a copy of the text; the rest is still
  // in the queue then.
  virtual void fail_all(const Status& status) = 0;
};

// Fails the group with kMismatch: in call `sequence`, rank `local` of this node has made another call
// than this rank. The message has both calls.
void fail_mismatch(const NodeAccess& access, uint64_t sequence, const ipc::Call& mine, uint32_t local,
                   const ipc::Call& theirs);
// Fails the group with kRankLost if a rank of this node has departed without making call `sequence`.
// True if so.
bool fail_if_departed(const NodeAccess& access, uint64_t sequence);

// The minimum of a counter over the rank states of this node, this rank included. acquire: the data that
// every rank has stored before its counter is visible afterwards.
template <typename Counter>
uint64_t least(const NodeAccess& access, Counter ipc::RankState::*counter) {
  uint64_t value = UINT64_MAX;
  for (uint32_t i = 0; i < access.layout().local_ranks; ++i) {
    const uint64_t one = (access.segment.rank_state(i).*counter).load(std::memory_order_acquire);
    value = one < value ? one : value;
  }
  return value;
}

}  // namespace hdt::client
