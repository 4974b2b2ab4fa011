// engine_reports.cc: see engine_reports.h.
#include "daemon/engine/engine_reports.h"

#include <fmt/core.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/address.h"
#include "collectives/owner_weights.h"
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
  if (const std::string why = group.stays_for(); !why.empty()) json["stays_for"] = why;
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
                             {"buffer_bytes", rank_state.buffer_bytes.load(std::memory_order_relaxed)},
                             {"copied_bytes", rank_state.copied_bytes.load(std::memory_order_relaxed)},
                             {"samples", rank_state.samples.load(std::memory_order_relaxed)},
                             {"departed", rank_state.departed.load(std::memory_order_relaxed) != 0}});
  }
  return json;
}

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

// The tuner's decision for the call in this group, with the place of every algorithm:
//
// - wrong: why the call cannot be made in this group; then nothing else follows.
// - picked: the algorithm, null in a group of one node; why: the reason, for people.
// - by_chunk_size: the algorithm that would be picked without measurements.
// - candidates: predicted_s in seconds, if it was predicted; left_out: why the algorithm is not taken.
// - predicted_for: the call that stands for its kind; hand_over_s: what ranks add to each time, in seconds.
// - owned: what part of each chunk every node combines, where the parts are unequal, by the nodes' names; and
//   where that is from: the bytes a second of its links, those that its engine combines, and those that its
//   ranks, if there are several, combine among themselves.
// - equal_parts_s: what the call would take with equal parts; equal_parts_wait_for: the node for which all
//   would wait then, and for what of it, its "links" or its "memory".
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
  // The echoes that the ranks of this node have measured; those of other nodes may have other values.
  std::vector<uint64_t> echoes_ns;
  for (uint32_t local = 0; local < context.layout().local_ranks; ++local) {
    echoes_ns.push_back(context.segment.rank_state(local).echo_ns.load(std::memory_order_acquire));
  }
  // Predictions are those of this node's tuner, which are the same on all nodes; only the time of handing
  // over is this node's own.
  const Explanation explanation = explain(tuner, call, context.group_class, hand_over_seconds(echoes_ns));
  json["picked"] = name_of(explanation.decision.algorithm);
  json["why"] = explanation.why;
  for (size_t node = 0; node < explanation.weights.size(); ++node) {
    const double part = static_cast<double>(explanation.weights[node]) / collectives::kWeightUnits;
    const collectives::OwnerRates& rates = explanation.rates[node];
    nlohmann::json entry = {{"node", context.nodes[node].name},
                            {"part", part},
                            {"link_bytes_s", rates.link},
                            {"combine_bytes_s", rates.combine}};
    if (rates.local != 0) entry["local_bytes_s"] = rates.local;
    json["owned"].push_back(entry);
  }
  if (!explanation.weights.empty()) {
    json["equal_parts_s"] = explanation.equal_parts_s;
    json["equal_parts_wait_for"] = {{"node", context.nodes[explanation.slowest_node].name},
                                    {"of_it", explanation.waits_for_memory ? "memory" : "links"}};
  }
  json["by_chunk_size"] = name_of(tuner.by_chunk_size(call));
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

// A group that the viewer may not see is left out, as if it did not exist. The caller decides whether the
// groups that are left are too many.
nlohmann::json EngineReports::explain(const std::string& name, const ipc::Call& call,
                                      const Viewer& viewer) const {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& group : groups_.all()) {
    if (group == nullptr || !viewer.sees(group->users())) continue;
    if (id_of(*group) != name && group->context().group_class != name) continue;
    json.push_back(explain_call(*group, call));
  }
  return json;
}

// A link is shown to a viewer if it is in use by a group that the viewer sees; all other links are only
// counted, since their nodes belong to others.
nlohmann::json EngineReports::status(const Viewer& viewer) const {
  nlohmann::json json;
  json["groups"] = nlohmann::json::array();
  size_t other_groups = 0;
  size_t other_peers = 0;
  std::set<const transport::Link*> seen;  // links of groups that the viewer sees
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    if (!viewer.sees(group->users())) {
      ++other_groups;
      continue;
    }
    for (const GroupPeer& peer : group->context().peers) seen.insert(peer.link);
    json["groups"].push_back(
        describe(*group, [&](uint32_t local) { return sessions_.pid_of(*group, local); }));
  }
  json["peers"] = nlohmann::json::array();
  for (const auto& [id, peer] : links_.all()) {
    if (!viewer.all && !seen.contains(&peer->link)) {
      ++other_peers;
      continue;
    }
    json["peers"].push_back(describe(*peer, devices_.backend_name(peer->backend), devices_.ends()));
  }
  json["other_groups"] = other_groups;
  json["other_peers"] = other_peers;
  return json;
}

// The latest choice for each class, as several groups of a class have one each. Choices of groups that have
// ended are shown where no living one replaces them.
nlohmann::json EngineReports::explain_link(const std::string& node, const Viewer& viewer) const {
  std::map<std::pair<std::string, std::string>, const LinkChoice*> latest;
  // The users of groups that have ended are not recorded, so only a viewer of everything sees those.
  if (viewer.all) {
    for (const auto& [whom, choice] : chooser_.past()) latest[whom] = &choice;
  }
  for (const auto& [whom, choice] : chooser_.all()) {
    const EngineGroup* const group = groups_.find(whom.first);
    const bool seen = viewer.all || (group != nullptr && viewer.sees(group->users()));
    if (seen) latest[{choice.peer.name, choice.group_class}] = &choice;
  }
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [whom, choice] : latest) {
    if (whom.first != node) continue;
    nlohmann::json entry = choice->report();
    entry["rails_up"] = nlohmann::json::array();
    const PeerLink* const peer = choice->link ? links_.find(*choice->link) : nullptr;
    if (peer != nullptr) {
      for (const auto& rail : peer->link.rails()) {
        if (rail.up()) {
          entry["rails_up"].push_back({{"local", rail.local_address}, {"remote", rail.remote_address}});
        }
      }
    }
    json.push_back(entry);
  }
  return json;
}

// The group's facts with the processes of this engine's sessions.
GroupFacts EngineReports::facts_of(const EngineGroup& group) const {
  return group.facts([&](uint32_t local) { return sessions_.pid_of(group, local); });
}

// All groups that are ready, also those that have failed: a verdict needs to know why.
std::vector<GroupFacts> EngineReports::groups() const {
  std::vector<GroupFacts> all;
  for (const auto& group : groups_.all()) {
    // A group that is being made is reported by lacks().
    if (group != nullptr && group->ready()) all.push_back(facts_of(*group));
  }
  return all;
}

// Every rail of every link, also lost ones with their latest errors.
std::vector<RailFacts> EngineReports::rails() const {
  std::vector<RailFacts> all;
  for (const auto& [id, peer] : links_.all()) {
    for (const auto& rail : peer->link.rails()) {
      const std::string& backend = devices_.backend_name(peer->backend);
      RailFacts& facts = all.emplace_back();
      facts.node = peer->name;
      facts.backend = backend;
      facts.nic = nic_at(devices_.ends(), backend, rail.local_address);
      facts.local = rail.local_address;
      facts.remote = rail.remote_address;
      facts.state = state_text(rail.state);
      facts.last_error = rail.last_error;
      facts.losses = rail.losses;
      facts.bytes_per_s = rail.bytes_per_second;
      facts.in_flight = rail.bytes_in_flight;
      // The nominal speed of the NIC.
      for (const auto& [name, info] : devices_.nics()) {
        if (name == backend && info.name == facts.nic) facts.megabits = info.bits_per_second / 1'000'000;
      }
    }
  }
  return all;
}

// For each group that is being made: what it lacks of each node, with the paths that are dialled and
// what came of them.
std::map<std::string, std::vector<std::string>> EngineReports::lacks() const {
  std::map<std::string, std::vector<std::string>> all;
  for (const auto& group : groups_.all()) {
    if (group == nullptr || group->ready() || group->context().failed()) continue;
    auto& lacks = all[id_text(group->id())];
    for (uint32_t node = 0; node < group->context().nodes.size(); ++node) {
      std::string lack = group->lacks_of(node);
      if (lack.empty()) continue;
      // The link that the group waits for: being dialled here, or to be dialled by the other node.
      const LinkChoice* const choice = chooser_.find(group->id(), node);
      const PeerLink* const peer = choice != nullptr && choice->link ? links_.find(*choice->link) : nullptr;
      if (peer != nullptr) {
        std::string paths;
        for (const RailPath& path : peer->paths) {
          if (path.up) continue;
          const transport::DeviceInfo& nic = devices_.nics()[path.pair.device].info;
          paths += (paths.empty() ? "" : ", ") + nic.name + " (" + nic.address + ") to " +
                   path.pair.theirs.address;
          if (!path.failure.empty()) paths += ": " + path.failure;
        }
        if (!paths.empty()) lack += "; " + devices_.backend_name(peer->backend) + " dials " + paths;
      } else if (choice != nullptr) {
        lack += choice->dials ? "; " + choice->failures() : ", which is to dial";
      }
      lacks.push_back(std::move(lack));
    }
  }
  return all;
}

}  // namespace hdt::daemon
