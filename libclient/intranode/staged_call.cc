// staged_call.cc: when each stage of a chunk may run. The conditions are on the counters of all local
// ranks (ipc/segment.h); each stage stores its own counter with release after its work, and least()
// loads the others' with acquire before the next stage reads that work.
#include "libclient/intranode/staged_call.h"

#include "libclient/common/call_queue.h"

namespace hdt::client {

using session::Board;

void StagedCall::begin(const session::Call& call, const std::byte* send, std::byte* recv) {
  call_ = call;
  send_ = send;
  recv_ = recv;
  // The cursors stand at end_ of the call before, which is where this one begins.
  first_ = end_;
  end_ = first_ + session::Plan(call, access_.layout()).pieces();
}

SlotPiece StagedCall::piece(uint64_t number) const {
  return {call_, session::Plan(call_, access_.layout()).piece(number - first_), number, send_, recv_};
}

// The bitwise `|` runs all three stages in each turn, so a rank never waits in one stage while it could
// work in another.
bool StagedCall::progress() {
  bool any = false;
  while (!access_.segment.failed()) {
    const bool moved =
        static_cast<int>(stage_one()) | static_cast<int>(combine_one()) | static_cast<int>(take_one());
    if (!moved) break;
    any = true;
  }
  // For `done`, for which the peers' copy-in of later chunks waits. The other counters were rung for at
  // once.
  if (any) access_.ring_peers();
  return any;
}

bool StagedCall::stage_one() {
  // A slot is free when every rank has copied out the chunk that used it before.
  if (stage_ == end_ || stage_ >= least(access_, &Board::done) + access_.layout().slots) return false;
  one_node::stage(access_, piece(stage_));
  access_.board().staged.store(++stage_, std::memory_order_release);
  access_.ring_peers();
  return true;
}

bool StagedCall::combine_one() {
  if (combine_ == end_ || combine_ >= least(access_, &Board::staged)) return false;
  one_node::combine(access_, piece(combine_));
  access_.board().reduced.store(++combine_, std::memory_order_release);
  access_.ring_peers();
  return true;
}

bool StagedCall::take_one() {
  if (take_ == end_ || take_ >= least(access_, &Board::reduced)) return false;
  one_node::take(access_, piece(take_));
  access_.board().done.store(++take_, std::memory_order_release);
  return true;
}

}  // namespace hdt::client
