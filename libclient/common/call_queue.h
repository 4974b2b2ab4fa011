// call_queue.h: the collectives a rank has under way in one group, in call order. Two kinds: groups of one
// node (node_queue.h), groups of several (collective_queue.h). Not thread-safe: the communicator's lock is
// held.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "ipc/call.h"
#include "libclient/common/node_access.h"
#include "libclient/common/operation.h"

namespace hdt::client {

class CallQueue {
 public:
  virtual ~CallQueue() = default;

  virtual void push(const session::Call& call, const void* send, void* recv,
                    std::shared_ptr<Operation> operation) = 0;
  // Does what can be done without waiting. True if anything was done.
  virtual bool progress() = 0;
  virtual bool empty() const = 0;
  // The oldest operation that is not complete (null: none); its sequence number and call.
  virtual const Operation* oldest() const = 0;
  virtual uint64_t oldest_sequence() const = 0;
  virtual const session::Call& oldest_call() const = 0;
  // Completes everything with `status`.
  virtual void fail_all(const Status& status) = 0;
};

// Fails the group: rank `local` of this node has called something else.
void fail_mismatch(const NodeAccess& access, uint64_t sequence, const session::Call& mine, uint32_t local,
                   const session::Call& theirs);
// Fails the group if a rank of this node has left without making call `sequence`. True if so.
bool fail_if_left(const NodeAccess& access, uint64_t sequence);

// The least value of a counter over the boards of this node's ranks.
template <typename Counter>
uint64_t least(const NodeAccess& access, Counter session::Board::*counter) {
  uint64_t value = UINT64_MAX;
  for (uint32_t i = 0; i < access.layout().local_ranks; ++i) {
    const uint64_t one = (access.segment.board(i).*counter).load(std::memory_order_acquire);
    value = one < value ? one : value;
  }
  return value;
}

}  // namespace hdt::client
