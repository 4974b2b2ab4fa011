// The seats of a group. A group begins to be used when every rank on every node has taken its seat,
// which means that it has mapped the group's memory and has written its pid into its state (`RankState`). So
// a rank that cannot do that, for example because its process is at a limit, fails the call that makes
// the group, on all ranks, and no later call.
#include <algorithm>

#include "daemon/group/engine_group.h"

namespace hdt::daemon {

// The ranks of a node see each other's states. Between nodes each daemon sends GroupSeated when all of
// its own are seated; with everyone's message it sets Header.seated, for which the ranks wait. Until all
// ranks of an adopted group are back, the predecessor may have sent the message or not: it is sent again
// then.
// Acquire pairs with the rank's release of its pid: its mapping of the memory is complete by then.
void EngineGroup::note_seats() {
  if (solo() || told_seated_ || adopting_ || context_.failed()) return;
  for (uint32_t local = 0; local < context_.layout().local_ranks; ++local) {
    if (context_.segment.rank_state(local).pid.load(std::memory_order_acquire) == 0) return;
  }
  told_seated_ = true;
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me) tell_seated(node);
  }
  on_seated(context_.me);
}

// The message may come twice, and after the group is seated: setting the same flags again changes nothing.
void EngineGroup::on_seated(uint32_t node) {
  seated_[node] = true;
  if (!std::all_of(seated_.begin(), seated_.end(), [](bool seated) { return seated; })) return;
  // release: a rank that sees `seated` also sees what was written before.
  context_.segment.header().seated.store(1, std::memory_order_release);
  context_.segment.ring_all();
}

// Sent again to a node whose daemon was started again, or after this one was: it may not have heard it.
// The message's number lets is_made() find out whether the node has acknowledged it.
void EngineGroup::tell_seated(uint32_t node) {
  GroupPeer& peer = context_.peers[node];
  if (!told_seated_ || peer.link == nullptr) return;
  context_.send(node, GroupSeated{context_.id, context_.me});
  peer.seat_message = peer.link->last_message();
}

// Whether the making of the group needs nothing more of this daemon, for a handover
// (docs/design/restart.md). A rank hears from its daemon that it has joined and then takes its seat; the
// call that makes the group returns when all have theirs. A daemon must not go before that: a rank
// without a seat is in no list of what its process hands over, and other nodes wait for this one's
// message. Suspended nodes do not count, since whoever is here when they return sends them the message.
bool EngineGroup::is_made() {
  if (context_.failed() || !has_local_ranks()) return true;
  for (uint32_t local = 0; local < local_departed_.size(); ++local) {
    if (!local_departed_[local] &&
        context_.segment.rank_state(local).pid.load(std::memory_order_acquire) == 0)
      return false;
  }
  if (solo()) return true;
  if (context_.segment.header().seated.load(std::memory_order_acquire) == 0) return false;
  bool all_heard = true;
  // Every node that can be reached has acknowledged GroupSeated. If not, it is asked to acknowledge now.
  for (GroupPeer& peer : context_.peers) {
    if (peer.link == nullptr || !peer.takes_part() || peer.suspended || peer.link->heard(peer.seat_message))
      continue;
    peer.link->ping();
    all_heard = false;
  }
  return all_heard;
}

// Answers ranks that measure the round trip to their daemon (libclient/daemon_client/daemon_echo.h).
// acquire and release pair with the rank's: it waits for the number that it has asked with.
void EngineGroup::give_echoes() {
  for (uint32_t local = 0; local < context_.layout().local_ranks; ++local) {
    ipc::RankState& rank_state = context_.segment.rank_state(local);
    const uint32_t asked = rank_state.echo_asked.load(std::memory_order_acquire);
    if (asked != rank_state.echo_given.load(std::memory_order_relaxed))
      rank_state.echo_given.store(asked, std::memory_order_release);
  }
}

}  // namespace hdt::daemon
