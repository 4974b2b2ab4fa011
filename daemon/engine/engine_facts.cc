// What an engine knows of its groups and rails, for diagnosis (facts.h): `hdtctl why` and the texts of
// deadlines. Everything is copied on the engine's thread; the control thread completes it. EngineGroup's
// parts of it are here as well.
#include "daemon/engine/engine.h"

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
    rank.left = local_left_[local] || rank_state.left.load(std::memory_order_acquire) != 0;
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

// Searches all seats: only diagnosis asks.
uint32_t Engine::pid_of(const EngineGroup& group, uint32_t local) const {
  for (const auto& [number, session] : sessions_) {
    for (const auto& [handle, seat] : session.seats) {
      if (seat.group == &group && seat.local == local) return session.link->pid;
    }
  }
  return 0;
}

// The group's facts with the processes of this engine's sessions.
GroupFacts Engine::facts_of(const EngineGroup& group) const {
  return group.facts([&](uint32_t local) { return pid_of(group, local); });
}

// All groups that are ready, also those that have failed: a verdict needs to know why.
std::vector<GroupFacts> Engine::group_facts() const {
  std::vector<GroupFacts> all;
  for (const auto& group : groups_) {
    // A group that is being made is reported by lacks().
    if (group != nullptr && group->ready()) all.push_back(facts_of(*group));
  }
  return all;
}

// Every rail of every link, also lost ones with their latest errors.
std::vector<RailFacts> Engine::rail_facts() const {
  std::vector<RailFacts> all;
  for (const auto& [id, peer] : peers_) {
    for (const auto& rail : peer->link.rails()) {
      const std::string& backend = backends_[peer->backend].name;
      RailFacts& facts = all.emplace_back();
      facts.node = peer->name;
      facts.backend = backend;
      facts.nic = nic_at(rail_ends_, backend, rail.local_address);
      facts.local = rail.local_address;
      facts.remote = rail.remote_address;
      facts.state = state_text(rail.state);
      facts.last_error = rail.last_error;
      facts.losses = rail.losses;
      facts.bytes_per_s = rail.bytes_per_second;
      facts.in_flight = rail.bytes_in_flight;
      // The nominal speed of the NIC.
      for (const auto& [name, info] : options_.nics) {
        if (name == backend && info.name == facts.nic) facts.megabits = info.bits_per_second / 1'000'000;
      }
    }
  }
  return all;
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

// For each group that is being made: what it lacks of each node, with the paths that are dialled and
// what came of them.
std::map<std::string, std::vector<std::string>> Engine::lacks() const {
  std::map<std::string, std::vector<std::string>> all;
  for (const auto& group : groups_) {
    if (group == nullptr || group->ready() || group->context().failed()) continue;
    auto& lacks = all[id_text(group->id())];
    for (uint32_t node = 0; node < group->context().nodes.size(); ++node) {
      std::string lack = group->lacks_of(node);
      if (lack.empty()) continue;
      // The link that the group waits for: being dialled here, or to be dialled by the other node.
      const auto choice = choices_.find({group->id(), node});
      const auto peer =
          choice != choices_.end() && choice->second.link ? peers_.find(*choice->second.link) : peers_.end();
      if (peer != peers_.end()) {
        std::string paths;
        for (const RailPath& path : peer->second->paths) {
          if (path.up) continue;
          const transport::DeviceInfo& nic = options_.nics[path.pair.device].info;
          paths += (paths.empty() ? "" : ", ") + nic.name + " (" + nic.address + ") to " +
                   path.pair.theirs.address;
          if (!path.failure.empty()) paths += ": " + path.failure;
        }
        if (!paths.empty()) lack += "; " + backends_[peer->second->backend].name + " dials " + paths;
      } else if (choice != choices_.end()) {
        lack += choice->second.dials ? "; " + choice->second.failures() : ", which is to dial";
      }
      lacks.push_back(std::move(lack));
    }
  }
  return all;
}

}  // namespace hdt::daemon
