#include "libclient/intranode/staged_call.h"

#include "libclient/common/call_queue.h"

namespace hdt::client {

using session::Board;

void StagedCall::begin(const session::Call& call, const std::byte* send, std::byte* recv) {
  call_ = call;
  send_ = send;
  recv_ = recv;
  first_ = end_;
  end_ = first_ + session::Plan(call, access_.layout()).pieces();
}

SlotPiece StagedCall::piece(uint64_t number) const {
  return {call_, session::Plan(call_, access_.layout()).piece(number - first_), number, send_, recv_};
}

bool StagedCall::progress() {
  bool any = false;
  while (!access_.segment.failed()) {
    const bool moved =
        static_cast<int>(stage_one()) | static_cast<int>(combine_one()) | static_cast<int>(take_one());
    if (!moved) break;
    any = true;
  }
  if (any) access_.ring_peers();
  return any;
}

bool StagedCall::stage_one() {
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
