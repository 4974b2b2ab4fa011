// A group begins to be used when every rank on every node has taken its seat, that is, has mapped the group's
// memory: so a rank that cannot, as its process is at a limit, fails the call that makes the group on all
// ranks, and no later one.
#include <algorithm>

#include "daemon/group/engine_group.h"

namespace hdt::daemon {

// The ranks of one node see each other's boards; between nodes each daemon tells the others of its own.
void EngineGroup::note_seats() {
  if (solo() || told_seated_ || adopting_ || context_.failed()) return;
  for (uint32_t local = 0; local < context_.layout().local_ranks; ++local) {
    if (context_.segment.board(local).pid.load(std::memory_order_acquire) == 0) return;
  }
  told_seated_ = true;
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me) tell_seated(node);
  }
  on_seated(context_.me);
}

void EngineGroup::on_seated(uint32_t node) {
  seated_[node] = true;
  if (!std::all_of(seated_.begin(), seated_.end(), [](bool seated) { return seated; })) return;
  context_.segment.header().seated.store(1, std::memory_order_release);
  context_.segment.ring_all();
}

// Again where one of the two daemons has been started again, and may not have heard it.
void EngineGroup::tell_seated(uint32_t node) {
  GroupPeer& peer = context_.peers[node];
  if (!told_seated_ || peer.link == nullptr) return;
  context_.send(node, GroupSeated{context_.id, context_.me});
  peer.seat_message = peer.link->last_message();
}

// A rank hears from its daemon that it has joined, and then takes its seat; a call that makes the group
// returns when all have. Until then a rank that has lost its daemon may not come back to the next one, and
// other nodes wait for a word of this one. A node that is away is told when it comes back, by whichever
// daemon is here then.
bool EngineGroup::is_made() {
  if (context_.failed() || !has_local_ranks()) return true;
  for (uint32_t local = 0; local < local_left_.size(); ++local) {
    if (!local_left_[local] && context_.segment.board(local).pid.load(std::memory_order_acquire) == 0)
      return false;
  }
  if (solo()) return true;
  if (context_.segment.header().seated.load(std::memory_order_acquire) == 0) return false;
  bool all_heard = true;
  for (GroupPeer& peer : context_.peers) {
    if (peer.link == nullptr || peer.left || peer.away || peer.link->heard(peer.seat_message)) continue;
    peer.link->ping();
    all_heard = false;
  }
  return all_heard;
}

// Answers ranks that measure how long that takes.
void EngineGroup::give_echoes() {
  for (uint32_t local = 0; local < context_.layout().local_ranks; ++local) {
    session::Board& board = context_.segment.board(local);
    const uint32_t asked = board.echo_asked.load(std::memory_order_acquire);
    if (asked != board.echo_given.load(std::memory_order_relaxed))
      board.echo_given.store(asked, std::memory_order_release);
  }
}

}  // namespace hdt::daemon
