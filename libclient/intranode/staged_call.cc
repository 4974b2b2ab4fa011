// staged_call.cc: when each stage of a chunk may run. The conditions are on the counters of all local
// ranks (ipc/segment.h); each stage stores its own counter with release after its work, and least()
// loads the others' with acquire before the next stage reads that work.
#include "libclient/intranode/staged_call.h"

#include "libclient/common/call_queue.h"

namespace hdt::client {

using ipc::RankState;

void StagedCall::begin(const ipc::Call& call, const std::byte* send, std::byte* recv) {
  call_ = call;
  send_ = send;
  recv_ = recv;
  // The cursors stand at end_ of the call before, which is where this one begins.
  first_ = end_;
  end_ = first_ + ipc::Partition(call, access_.layout()).chunks();
}

SlotChunk StagedCall::chunk(uint64_t number) const {
  return {call_, ipc::Partition(call_, access_.layout()).chunk(number - first_), number, send_, recv_};
}

// The bitwise `|` runs all three stages in each turn, so a rank never waits in one stage while it could
// work in another.
bool StagedCall::progress() {
  bool any = false;
  while (!access_.segment.failed()) {
    const bool moved =
        static_cast<int>(copy_in_one()) | static_cast<int>(reduce_one()) | static_cast<int>(copy_out_one());
    if (!moved) break;
    any = true;
  }
  // For `done`, for which the peers' copy-in of later chunks waits. The other counters were rung for at
  // once.
  if (any) access_.ring_peers();
  return any;
}

bool StagedCall::copy_in_one() {
  // A slot is free when every rank has copied out the chunk that used it before.
  if (copy_in_ == end_ || copy_in_ >= least(access_, &RankState::done) + access_.layout().slots) return false;
  one_node::copy_in(access_, chunk(copy_in_));
  access_.rank_state().staged.store(++copy_in_, std::memory_order_release);
  access_.ring_peers();
  return true;
}

bool StagedCall::reduce_one() {
  if (reduce_ == end_ || reduce_ >= least(access_, &RankState::staged)) return false;
  one_node::reduce(access_, chunk(reduce_));
  access_.rank_state().reduced.store(++reduce_, std::memory_order_release);
  access_.ring_peers();
  return true;
}

bool StagedCall::copy_out_one() {
  if (copy_out_ == end_ || copy_out_ >= least(access_, &RankState::reduced)) return false;
  one_node::copy_out(access_, chunk(copy_out_));
  access_.rank_state().done.store(++copy_out_, std::memory_order_release);
  return true;
}

}  // namespace hdt::client
