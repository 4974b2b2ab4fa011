// engine_group_facts.cc: what a group knows of itself, for diagnosis (facts.h). Everything is copied on the
// engine's thread; the control thread completes it.
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

// The group as this node sees it. The verdict on a group that hangs compares the facts of all nodes:
// which calls each rank has made, what each node has received from each other, and how long ago
// (verdict.h).
GroupFacts EngineGroup::facts(const std::function<uint32_t(uint32_t local)>& pid) const {
  GroupFacts facts;
  facts.id = id_text(context_.id);
  facts.name = context_.name();
  facts.group_class = context_.group_class;
  facts.users = users_;
  facts.ended = !has_local_ranks();
  if (context_.failed()) {
    const Status failure = context_.failure();
    facts.code = static_cast<int>(failure.code());
    facts.failed_rank = context_.failed_rank();
    facts.failure = failure.message();
  }
  for (uint32_t node = 0; node < context_.nodes.size(); ++node) {
    // The daemon's address tells nodes apart where a name does not.
    GroupNodeFacts& place = facts.nodes.emplace_back();
    place.name = context_.nodes[node].name;
    place.control = context_.nodes[node].address;
    facts.members.push_back(context_.nodes[node].id);
    for (uint64_t p = context_.order.first_position[node]; p < context_.order.first_position[node + 1]; ++p) {
      place.ranks.push_back(context_.order.rank_at[p]);
    }
  }
  for (uint32_t local = 0; local < context_.local_ranks.size(); ++local) {
    const ipc::RankState& rank_state = context_.segment.rank_state(local);
    RankFacts& rank = facts.local.emplace_back();
    rank.rank = context_.local_ranks[local];
    rank.pid = pid(local);
    rank.departed = local_departed_[local] || rank_state.departed.load(std::memory_order_acquire) != 0;
    rank.end = local_end_[local];
    rank.calls = rank_state.entered.load(std::memory_order_acquire);
    // The records are foreign memory: they are copied now, and parsed by complete().
    rank.records = ipc::copy_records(context_.segment.recording(local));
  }
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node == context_.me) continue;
    const GroupPeer& peer = context_.peers[node];
    // -1: nothing has come from that node.
    facts.peers.push_back({context_.nodes[node].name, peer.link != nullptr, peer.writes, peer.arrivals,
                           peer.arrived_ns == 0 ? -1 : now_ns() - peer.arrived_ns, peer.writes_in_flight});
  }
  return facts;
}

// In the order in which a group gets what it needs.
std::string EngineGroup::lacks_of(uint32_t node) const {
  const GroupPeer& peer = context_.peers[node];
  if (node == context_.me) return compares_rates() && !rates_[node] ? "measures its links" : "";
  if (peer.link == nullptr) return "has no connection to node " + context_.nodes[node].name;
  if (!peer.ready) return "is connected to node " + context_.nodes[node].name + ", which is not ready";
  if (compares_rates() && !rates_[node])
    return "waits for what node " + context_.nodes[node].name + " measures of its links";
  if (!peer.has_all) return "waits for node " + context_.nodes[node].name + ", which lacks something";
  return "";
}

// The conditions of finished(), one by one.
std::string EngineGroup::stays_for() const {
  if (has_local_ranks() || finished()) return "";
  if (!departure_sent_ || context_.writes_in_flight() != 0) return "what it has sent has not arrived";
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me && awaits_departure(node))
      return "node " + context_.nodes[node].name + " has not departed";
  }
  return "it is being made";
}

}  // namespace hdt::daemon
