// A group over the restart of a daemon (docs/design/restart.md): going on from a predecessor's memory,
// waiting for a successor on another node, and agreeing with it on what has come.
//
// A node is suspended by wait_for(). Its successor connects like a new node: the engine makes a link,
// and both ends send GroupHello. At the other's hello each end sends what has come of the other's writes
// (tell_state()); at the other's Resume it writes what has not come, and the node is open again
// (on_resume()).
#include <algorithm>

#include "base/log.h"
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

// Takes up a group that was made by a predecessor; Adoption::describe() has checked its memory. The
// group is ready, but nothing moves until all ranks of this node are back (`adopting_`), and every other
// node is suspended until both ends have sent what has come.
void EngineGroup::go_on(const GroupSpec& spec) {
  if (!solo()) {
    ready_ = true;
    if (!spec.rates.empty()) set_rates(spec.rates, spec.nics);
    rings_.go_on();
    for (uint32_t node = 0; node < context_.peers.size(); ++node) {
      if (node != context_.me)
        wait_for(node, Status(Code::kDaemonLost, "this node's daemon was started again"), spec.restart_ms);
    }
    // For the successor of this daemon, and for hdtCommShrink: where this one can be met.
    context_.segment.places()[context_.me].set(context_.nodes[context_.me].address);
  }
  // Ranks may have departed while no daemon was there.
  note_departures();
}

// A local rank has departed that belongs to the process which hosts this daemon.
bool EngineGroup::host_has_departed() const {
  for (uint32_t local = 0; local < local_departed_.size(); ++local) {
    if (local_departed_[local] &&
        context_.segment.rank_state(local).hosts.load(std::memory_order_acquire) != 0)
      return true;
  }
  return false;
}

// While one node is suspended the group cannot change its links or its class.
bool EngineGroup::anyone_suspended() const {
  return std::any_of(context_.peers.begin(), context_.peers.end(),
                     [](const GroupPeer& peer) { return peer.suspended; });
}

// Calls under way stay as they are: what they have written is kept, and what they still have to write to
// the node is held.
void EngineGroup::wait_for(uint32_t node, const Status& why, int64_t restart_ms) {
  GroupPeer& peer = context_.peers[node];
  // Messages of an earlier attempt do not count any more.
  peer.their_chunks.clear();
  peer.their_rings.clear();
  peer.suspended = true;
  peer.restart_ms = restart_ms;
  peer.suspended_until = Deadline::after_ms(restart_ms);
  peer.suspended_why = why;
  HDT_LOG_INFO("{} waits for node {}, at most {} ms: {} {}", context_.name(), context_.nodes[node].name,
               restart_ms, why.message(), LogTag{.node = context_.nodes[context_.me].name});
}

// By a deadline of this node's own; the other nodes of the group may come to it somewhat earlier or later,
// and the failure that comes first counts.
void EngineGroup::give_up_waiting() {
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    GroupPeer& peer = context_.peers[node];
    if (!peer.suspended || !peer.suspended_until.expired()) continue;
    peer.suspended = false;
    peer.failed = true;
    if (!has_local_ranks()) continue;  // there is nobody to inform
    fail(Code::kRankLost, static_cast<int32_t>(context_.order.rank_at[context_.order.first_position[node]]),
         about(node) + " has failed: " + peer.suspended_why.message() +
             ", and its daemon sent no message within " + std::to_string(peer.restart_ms) + " ms");
  }
}

// The place in the segment is for ranks that make a smaller group and must find the node without this
// daemon.
void EngineGroup::set_node(uint32_t node, const NodeInfo& info) {
  context_.nodes[node] = info;
  context_.segment.places()[node].set(info.address);
}

// Rings first: the Resume that ChunkRunner sends must be the last message.
void EngineGroup::tell_state(uint32_t node) {
  rings_.tell_state(node);
  chunks_.tell_state(node);
}

// Repeats what was sent while no daemon was there to hear it. Ranks that depart mark that in their
// states (`RankState`), where a successor of this daemon finds it.
void EngineGroup::tell_departures(uint32_t node) {
  for (uint32_t local = 0; local < local_departed_.size(); ++local) {
    if (local_departed_[local]) tell_departure(local, node);
  }
  if (departure_sent_) context_.send(node, NodeDeparted{context_.id, context_.me});
}

// The order matters. The node is open first, since both parts write to it. progress() comes last: ranks may
// have called while nothing could move.
void EngineGroup::on_resume(uint32_t node, const Resume& note) {
  GroupPeer& peer = context_.peers[node];
  // The node counts as open from here on, so that the next two calls can write to it.
  peer.suspended = false;
  peer.suspended_until = Deadline::never();
  chunks_.on_message(note);
  rings_.resume(node);
  // It may not have heard of seats and departures.
  tell_seated(node);
  tell_departures(node);
  peer.their_chunks.clear();
  peer.their_rings.clear();
  HDT_LOG_INFO(
      "{} goes on with node {} {}", context_.name(), context_.nodes[node].name,
      LogTag{.op = static_cast<int64_t>(chunks_.calls_entered()), .node = context_.nodes[context_.me].name});
  step_rates([&](RateChanges& changes) { changes.on_back(node, now_ns()); });
  on_rails(node);
  services_->on_back(node);
  progress();
}

}  // namespace hdt::daemon
