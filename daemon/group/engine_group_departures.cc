// engine_group_departures.cc: ranks that leave a group, and the end of a node's part in it.
#include <algorithm>

#include "base/contained.h"
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kHurryMs = 10;  // between two requests of send_departure() to acknowledge what was sent

}  // namespace

void EngineGroup::local_rank_departed(uint32_t local) {
  if (local_departed_[local]) return;
  local_departed_[local] = true;
  if (adopting_) check_adopted();
  ipc::RankState& rank_state = context_.segment.rank_state(local);
  rank_state.departed.store(1, std::memory_order_release);
  const uint64_t entered = rank_state.entered.load(std::memory_order_acquire);
  // A node that has not heard of the failure would take the departure for its cause, since links have no
  // order among each other.
  tell_failure();
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me) tell_departure(local, node);
  }
  chunks_.on_rank_departed(context_.local_ranks[local], entered);
  context_.segment.ring_all();
  progress();
}

void EngineGroup::tell_departure(uint32_t local, uint32_t node) {
  const uint64_t entered = context_.segment.rank_state(local).entered.load(std::memory_order_acquire);
  rings_.tell_ends(local, node);
  context_.send(node, RankDeparted{context_.id, context_.local_ranks[local], entered});
}

void EngineGroup::note_departures() {
  for (uint32_t local = 0; local < local_departed_.size(); ++local) {
    if (context_.segment.rank_state(local).departed.load(std::memory_order_acquire) != 0)
      local_rank_departed(local);
  }
}

void EngineGroup::local_rank_failed(uint32_t local, std::string_view how) {
  if (local_departed_[local]) return;
  const auto fail_by_name = [&] {
    local_end_[local] = how;
    const uint32_t rank = context_.local_ranks[local];
    fail(Code::kRankLost, static_cast<int32_t>(rank),
         "rank " + std::to_string(rank) + " of " + context_.name() + " on node " +
             context_.nodes[context_.me].name + " " + local_end_[local]);
  };
  // Even without memory to name the rank the group must fail: the rank does not come back.
  (void)contained("the loss of a rank", fail_by_name, [this](const std::string& why) { give_up(why); });
  local_rank_departed(local);
}

// NodeDeparted lets the other nodes free their memory, so it must not overtake what is under way. In a
// running group their ranks have waited for the ends of calls, and only cells are awaited here. In a
// failed group nobody has waited, so the acknowledgements of all writes are awaited.
void EngineGroup::send_departure() {
  if (has_local_ranks() || departure_sent_) return;
  const bool on_one_link =
      std::all_of(context_.peers.begin(), context_.peers.end(),
                  [](const GroupPeer& peer) { return peer.old.empty() && peer.offered == nullptr; });
  if (!context_.failed()) {
    if (!rings_.drained() && (hurry_at_.is_never() || hurry_at_.expired())) {
      hurry(context_.links_with_writes());
      hurry_at_ = Deadline::after_ms(kHurryMs);
    }
    if (!rings_.drained() || !on_one_link) return;
  } else if (const auto links = context_.links_with_writes(); !links.empty()) {
    if (!hurry_at_.is_never() && !hurry_at_.expired()) return;
    hurry(links);
    hurry_at_ = Deadline::after_ms(kHurryMs);
    return;
  }
  hurry_at_ = Deadline::never();
  tell_failure();
  context_.send_all(NodeDeparted{context_.id, context_.me});
  departure_sent_ = true;
}

bool EngineGroup::has_local_ranks() const {
  return !std::all_of(local_departed_.begin(), local_departed_.end(), [](bool departed) { return departed; });
}

bool EngineGroup::awaits_departure(uint32_t node) const {
  const GroupPeer& peer = context_.peers[node];
  return peer.takes_part() && (peer.suspended || (peer.link != nullptr && peer.ready));
}

bool EngineGroup::finished() const {
  if (context_.writes_in_flight() != 0 || has_local_ranks()) return false;
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me && awaits_departure(node)) return false;
  }
  // A failed group too ends only after its NodeDeparted: others wait for it.
  return departure_sent_ && (ready_ || context_.failed());
}

}  // namespace hdt::daemon
