// call_queue.cc: how a queue finds out that the ranks of its node do not agree. Both functions fail the
// group on all nodes (NodeAccess::fail), with a message that names the ranks and the calls.
#include "libclient/common/call_queue.h"

#include <string>

namespace hdt::client {

void fail_mismatch(const NodeAccess& access, uint64_t sequence, const ipc::Call& mine, uint32_t local,
                   const ipc::Call& theirs) {
  const uint32_t rank = access.rank_of(local);
  access.fail(Code::kMismatch, static_cast<int32_t>(rank),
              "call " + std::to_string(sequence) + " of this group (class " +
                  access.segment.header().group_class + "): rank " + std::to_string(access.rank) + " calls " +
                  ipc::describe(mine) + ", rank " + std::to_string(rank) + " calls " + ipc::describe(theirs));
}

bool fail_if_departed(const NodeAccess& access, uint64_t sequence) {
  for (uint32_t i = 0; i < access.layout().local_ranks; ++i) {
    const ipc::RankState& rank_state = access.segment.rank_state(i);
    if (rank_state.departed.load(std::memory_order_acquire) == 0) continue;
    // The departure is looked at first, the calls afterwards: a rank makes no call after it has
    // departed, so `entered` is final. acquire on `departed` pairs with the release in
    // Communicator::leave().
    const uint64_t entered = rank_state.entered.load(std::memory_order_acquire);
    if (entered > sequence) continue;
    access.fail(Code::kRankLost, static_cast<int32_t>(access.rank_of(i)),
                "rank " + std::to_string(access.rank_of(i)) + " departed from the group (class " +
                    access.segment.header().group_class + ") after " + std::to_string(entered) +
                    " collective calls; call " + std::to_string(sequence) + " needs it");
    return true;
  }
  return false;
}

}  // namespace hdt::client
