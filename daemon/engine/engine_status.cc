// What an engine says about itself: `hdtctl status` and `hdtctl explain`. The names of the fields are
// those that hdtctl and tests read. A viewer who may not see all groups sees those of its own user, and
// of the others how many there are.
#include <fmt/core.h>

#include <functional>
#include <set>

#include "base/address.h"
#include "daemon/engine/engine.h"
#include "daemon/group/explanation.h"

namespace hdt::daemon {

namespace {

// The short form of the id, which logs, status and diagnosis have in common.
std::string id_of(const EngineGroup& group) { return short_id(group.id()); }

// One group. `pid` returns the process of a local rank; 0: none is known. Counters of ranks are read
// from their memory as they are: they are shown, and nothing is decided by them.
nlohmann::json describe(const EngineGroup& group, const std::function<uint32_t(uint32_t local)>& pid) {
  const GroupContext& context = group.context();
  nlohmann::json json;
  json["id"] = id_of(group);
  json["class"] = context.group_class;
  json["users"] = group.users();
  json["ranks"] = context.layout().ranks;
  json["state"] = context.failed()   ? "failed"
                  : group.adopting() ? "waiting for its ranks"
                  : group.ready()    ? "ready"
                                     : "connecting";
  if (context.failed()) json["failure"] = context.failure().to_string();
  json["nodes"] = nlohmann::json::array();
  for (uint32_t node = 0; node < context.nodes.size(); ++node) {
    nlohmann::json ranks = nlohmann::json::array();
    for (uint64_t p = context.order.first_position[node]; p < context.order.first_position[node + 1]; ++p) {
      ranks.push_back(context.order.rank_at[p]);
    }
    json["nodes"].push_back({{"name", context.nodes[node].name}, {"ranks", ranks}});
  }
  json["local"] = nlohmann::json::array();
  for (uint32_t local = 0; local < context.local_ranks.size(); ++local) {
    const ipc::RankState& rank_state = context.segment.rank_state(local);
    json["local"].push_back({{"rank", context.local_ranks[local]},
                             {"pid", pid(local)},
                             {"calls", rank_state.entered.load(std::memory_order_relaxed)},
                             {"left", rank_state.left.load(std::memory_order_relaxed) != 0}});
  }
  return json;
}

}  // namespace

// The states in the words of hdtctl. "connecting" is the glossary's greeting.
const char* state_text(transport::RailStatus::State state) {
  switch (state) {
    case transport::RailStatus::State::kGreeting:
      return "connecting";
    case transport::RailStatus::State::kUp:
      return "up";
    case transport::RailStatus::State::kDown:
      return "down";
  }
  return "unknown";
}

// Ports differ between the end, which listens, and a rail, so only the addresses are compared.
std::string nic_at(const std::vector<RailEnd>& ends, const std::string& backend, const std::string& local) {
  for (const RailEnd& end : ends) {
    if (end.backend == backend && host_of(end.address) == host_of(local)) return end.nic;
  }
  return "";
}

namespace {

// One link with its rails (RailStatus in link.h):
//
// - writes_pending: writes that were not reported sent; bytes_queued: bytes that no rail has taken yet.
// - losses, bytes_resent, corrupted: since the link was made, over all rails between the two addresses.
// - bytes_per_s: measured lately while the rail was busy; 0: not measured.
// - mean_bytes_per_s_out and _in: over the time since the link came up, pauses included.
nlohmann::json describe(const PeerLink& peer, const std::string& backend, const std::vector<RailEnd>& ends) {
  nlohmann::json json;
  json["node"] = peer.name;
  json["backend"] = backend;
  json["class"] = peer.group_class;
  json["state"] = peer.link.up() ? "up" : peer.announced ? "waiting for a rail" : "connecting";
  const double seconds = static_cast<double>(now_ns() - peer.up_since_ns) / kNsPerSecond;
  json["writes_pending"] = peer.link.pending_writes();
  json["bytes_queued"] = peer.link.queued_bytes();
  json["rails"] = nlohmann::json::array();
  for (const auto& rail : peer.link.rails()) {
    json["rails"].push_back({{"backend", backend},
                             {"nic", nic_at(ends, backend, rail.local_address)},
                             {"local", rail.local_address},
                             {"remote", rail.remote_address},
                             {"state", state_text(rail.state)},
                             {"losses", rail.losses},
                             {"last_error", rail.last_error},
                             {"bytes_resent", rail.bytes_resent},
                             {"corrupted", rail.corrupted},
                             {"bytes_in_flight", rail.bytes_in_flight},
                             {"bytes_per_s", rail.bytes_per_second},
                             {"bytes_out", rail.bytes_out},
                             {"bytes_in", rail.bytes_in},
                             {"writes_out", rail.writes_out},
                             {"writes_in", rail.writes_in},
                             {"messages_out", rail.messages_out},
                             {"messages_in", rail.messages_in},
                             {"mean_bytes_per_s_out", static_cast<double>(rail.bytes_out) / seconds},
                             {"mean_bytes_per_s_in", static_cast<double>(rail.bytes_in) / seconds}});
  }
  return json;
}

// What the tuner decides for the call in this group, with the place of every algorithm:
//
// - wrong: why the call cannot be made in this group; then nothing else follows.
// - picked: the algorithm, null in a group of one node; why: the reason, for people.
// - candidates: predicted_s in seconds, if it was predicted; left_out: why the algorithm is not taken.
// - predicted_for: the call that stands for its kind; hand_over_s: what ranks add to each time, in seconds.
// - chunks, chunk_bytes: how many chunks the call is cut into, and the bytes of the first.
nlohmann::json explain_call(EngineGroup& group, const ipc::Call& call) {
  const GroupContext& context = group.context();
  Tuner& tuner = group.tuner();
  nlohmann::json json;
  json["group"] = id_of(group);
  json["class"] = context.group_class;
  json["ranks"] = context.layout().ranks;
  json["nodes"] = context.nodes.size();
  // The call is a user's question, so it may be invalid for this group.
  if (const std::string wrong = ipc::validate(call, context.layout().ranks); !wrong.empty()) {
    json["wrong"] = wrong;
    return json;
  }
  json["call"] = ipc::describe(call);
  json["configured"] = tuner.configured() ? name_of(*tuner.configured()) : "auto";
  json["candidates"] = nlohmann::json::array();
  // A group of one node runs no algorithm between nodes.
  if (group.solo()) {
    json["picked"] = nullptr;
    json["why"] =
        "all ranks are on one node, where they combine in shared memory: no algorithm between nodes is "
        "needed";
    return json;
  }
  const ipc::Partition plan(call, context.layout());
  json["chunks"] = plan.chunks();
  json["chunk_bytes"] =
      problem_of(call, plan.chunk(0), context.order, 0).elements() * collectives::type_size(call.type);
  // What the ranks of this node have measured; those of other nodes may have measured other values.
  std::vector<uint64_t> echoes_ns;
  for (uint32_t local = 0; local < context.layout().local_ranks; ++local) {
    echoes_ns.push_back(context.segment.rank_state(local).echo_ns.load(std::memory_order_acquire));
  }
  const Explanation explanation = explain(tuner, call, context.group_class, hand_over_seconds(echoes_ns));
  json["picked"] = name_of(explanation.decision.algorithm);
  json["why"] = explanation.why;
  // Without measurements nothing is predicted.
  if (!tuner.predictions(call).empty()) {
    json["predicted_for"] = describe(Tuner::representative(call));
    json["hand_over_s"] = explanation.hand_over_s;
  }
  for (const auto& candidate : explanation.candidates) {
    nlohmann::json entry = {{"algorithm", name_of(candidate.algorithm)}};
    if (candidate.seconds > 0) entry["predicted_s"] = candidate.seconds;
    if (!candidate.left_out.empty()) entry["left_out"] = candidate.left_out;
    json["candidates"].push_back(entry);
  }
  return json;
}

}  // namespace

// `name`: a group's id as status shows it, or a class. Groups that the viewer does not see are passed over.
nlohmann::json Engine::explain(const std::string& name, const ipc::Call& call, const Viewer& viewer) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& group : groups_) {
    if (group == nullptr || !viewer.sees(group->users())) continue;
    if (id_of(*group) != name && group->context().group_class != name) continue;
    json.push_back(explain_call(*group, call));
  }
  return json;
}

// A link is shown to a viewer if it is in use by a group that the viewer sees; all other links are only
// counted, since their nodes belong to others.
nlohmann::json Engine::status(const Viewer& viewer) const {
  nlohmann::json json;
  json["groups"] = nlohmann::json::array();
  size_t other_groups = 0;
  size_t other_peers = 0;
  std::set<const transport::Link*> seen;  // links of groups that the viewer sees
  for (const auto& group : groups_) {
    if (group == nullptr) continue;
    if (!viewer.sees(group->users())) {
      ++other_groups;
      continue;
    }
    for (const GroupPeer& peer : group->context().peers) seen.insert(peer.link);
    json["groups"].push_back(describe(*group, [&](uint32_t local) { return pid_of(*group, local); }));
  }
  json["peers"] = nlohmann::json::array();
  for (const auto& [id, peer] : peers_) {
    if (!viewer.all && !seen.contains(&peer->link)) {
      ++other_peers;
      continue;
    }
    json["peers"].push_back(describe(*peer, backends_[peer->backend].name, rail_ends_));
  }
  json["other_groups"] = other_groups;
  json["other_peers"] = other_peers;
  return json;
}

}  // namespace hdt::daemon
