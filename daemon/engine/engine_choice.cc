// Which link a group takes to each other node (link_choice.h).
#include <algorithm>
#include <set>

#include "base/log.h"
#include "daemon/engine/engine.h"
#include "transports/several_connections.h"

namespace hdt::daemon {

namespace {

// While another candidate is left, a NIC pair that does not answer is not waited for any longer than this.
constexpr int64_t kTryMs = 2'000;
constexpr size_t kMaxPastChoices = 256;
// Beyond what the end that dials needs to try all candidates: it knows first, and says so, if anything gets
// through.
constexpr int64_t kDialerGraceMs = 5'000;

// Each pair has one path or several, in the same order; spares come last.
bool same_pairs(const LinkCandidate& candidate, const std::vector<RailPath>& paths) {
  auto path = paths.begin();
  std::vector<LinkCandidate::Pair> pairs = candidate.pairs;
  pairs.insert(pairs.end(), candidate.spares.begin(), candidate.spares.end());
  for (const LinkCandidate::Pair& pair : pairs) {
    const auto other = [&](const RailPath& p) {
      return p.pair.device != pair.device || p.pair.theirs.address != pair.theirs.address;
    };
    const auto end = std::find_if(path, paths.end(), other);
    if (end == path) return false;
    path = end;
  }
  return path == paths.end();
}

}  // namespace

// Where a region is registered through one device, it is valid on all of the backend.
transport::Device& Engine::device_of(uint32_t backend) { return *devices_[backends_[backend].first_device]; }

Result<transport::RegionKey> Engine::group_key(uint64_t group, uint32_t backend, const NodeId& node) {
  GroupMemory& memory = group_memory_[group];
  auto known = memory.keys.find(backend);
  if (known == memory.keys.end()) {
    session::Segment& segment = group_of(group)->segment();
    auto key = device_of(backend).register_memory(segment.data(), segment.data_bytes(), memory.memory->fd());
    if (!key.is_ok()) return key;
    known = memory.keys.emplace(backend, key.value()).first;
  }
  HDT_RETURN_IF_ERROR(device_of(backend).grant(known->second, writer(node)));
  return known->second;
}

void Engine::withdraw(EngineGroup& group, const NodeId& node) {
  for (const auto& [backend, key] : group_memory_[group.id()].keys)
    device_of(backend).revoke(key, writer(node));
  group.revoke_direct(node);
}

PeerLink& Engine::add_peer(const LinkId& id, const std::string& name, uint32_t backend,
                           const std::string& group_class) {
  auto peer = std::make_unique<PeerLink>(id, name, backend, group_class, *this, options_.link);
  retired_.reserve(retired_.size() + peers_.size() + 1);  // so that forget_peer() takes no memory
  auto& kept = peers_[id];
  kept = std::move(peer);
  return *kept;
}

std::vector<LinkCandidate> Engine::candidates_between(const NodeInfo& own, const NodeInfo& peer,
                                                      bool own_is_first) const {
  std::vector<transport::DeviceInfo> devices;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < devices_.size(); ++i) {
    devices.push_back(options_.nics[i].info);
    addresses.push_back(rail_ends_[i].address);
  }
  // As they are now: addresses come and go. Without them nothing is known to lead nowhere, and all is tried.
  auto host = transport::OwnAddresses::now();
  if (!host.is_ok()) HDT_LOG_WARN("{} {}", host.status().message(), LogTag{.node = options_.node_name});
  return link_candidates(own, peer, own_is_first, options_.index, devices, addresses,
                         host.is_ok() ? host.take() : transport::OwnAddresses());
}

void Engine::connect_group(EngineGroup& group) {
  const GroupContext& context = group.context();
  std::set<std::string> names;
  for (const NodeInfo& node : context.nodes) {
    if (names.insert(node.name).second) continue;
    HDT_LOG_WARN("{}: two of its nodes have the name {}, so messages do not tell them apart (node.name) {}",
                 context.name(), node.name, LogTag{.node = options_.node_name});
  }
  for (uint32_t node = 0; node < context.nodes.size(); ++node) {
    if (node == context.me) continue;
    connect_node(group, node);
    if (group.context().failed()) return;
  }
}

void Engine::connect_node(EngineGroup& group, uint32_t node) {
  const GroupContext& context = group.context();
  LinkChoice& choice = choices_[{group.id(), node}];
  choice = {};
  choice.peer = context.nodes[node];
  choice.group_class = context.group_class;
  choice.dials = dials(options_.node, options_.node_name, choice.peer.id, choice.peer.name);
  choice.candidates = candidates_between(context.nodes[context.me], choice.peer, context.me < node);
  if (choice.dials) return try_candidates(group, node);
  const auto others = static_cast<int64_t>(std::max<size_t>(choice.candidates.size(), 1)) - 1;
  choice.dialled_by = Deadline::after_ms(options_.connect_ms +
                                         others * std::min(options_.connect_ms, kTryMs) + kDialerGraceMs);
  // The peer may have chosen already: its hello has come on the link that it takes.
  for (const EarlyNote& early : early_) {
    const auto peer = peers_.find(early.from);
    if (early.from.node != choice.peer.id || peer == peers_.end() ||
        daemon::group_of(early.note) != group.id() || !std::holds_alternative<GroupHello>(early.note)) {
      continue;
    }
    take_link(group, node, *peer->second);
    break;
  }
}

// Where the way to the node that is to dial is dead, it cannot say so.
void Engine::give_up_on_dialers() {
  for (auto& [whom, choice] : choices_) {
    if (!choice.dialled_by.expired()) continue;
    choice.dialled_by = Deadline::never();
    EngineGroup* group = group_of(whom.first);
    if (group == nullptr || group->ready() || group->connected(whom.second) || group->context().failed())
      continue;
    contain(*group, [&, &late = choice] {
      group->fail(Code::kLink, -1,
                  "class " + late.group_class + ": node " + late.peer.name + " was to connect to node " +
                      options_.node_name + " and has not: nothing comes from " + late.peer.address +
                      " any more, or a firewall drops data connections");
    });
    touch(group);
  }
}

Deadline Engine::next_dialer_time() const {
  Deadline next = Deadline::never();
  for (const auto& [whom, choice] : choices_) next = Deadline::earlier(next, choice.dialled_by);
  return next;
}

PeerLink* Engine::link_over(const NodeId& node, const std::string& group_class,
                            const LinkCandidate& candidate) {
  for (auto& [id, peer] : peers_) {
    if (id.node == node && !peer->superseded && (peer->announced || peer->dialing()) &&
        peer->group_class == group_class && backends_[peer->backend].name == candidate.backend &&
        same_pairs(candidate, peer->paths)) {
      return peer.get();
    }
  }
  return nullptr;
}

PeerLink* Engine::dial_candidate(const NodeInfo& node, const std::string& group_class,
                                 LinkCandidate& candidate, bool last) {
  std::vector<RailPath> paths;  // before there is a link: one without paths would never come up, nor end
  const auto add = [&](const LinkCandidate::Pair& pair, bool spare) {
    const auto* several = dynamic_cast<const transport::SeveralConnections*>(devices_[pair.device].get());
    const size_t connections = several == nullptr || spare ? 1 : several->connections();
    for (size_t i = 0; i < connections; ++i) {
      RailPath& path = paths.emplace_back();
      path.pair = pair;
      path.spare = spare;
    }
  };
  for (const auto& pair : candidate.pairs) add(pair, false);
  for (const auto& pair : candidate.spares) add(pair, true);
  PeerLink& peer =
      add_peer({node.id, next_link_++}, node.name, backend_of_[candidate.pairs.front().device], group_class);
  peer.first_dial_ms = last ? options_.connect_ms : std::min(options_.connect_ms, kTryMs);
  peer.paths = std::move(paths);
  if (dial(peer)) return &peer;
  (void)contained("why a node is not reached", [&] { candidate.failure = peer.failures(); });
  peers_.erase(peer.id);
  return nullptr;
}

void Engine::try_candidates(EngineGroup& group, uint32_t node) {
  LinkChoice& choice = choices_[{group.id(), node}];
  for (; choice.current < choice.candidates.size(); ++choice.current) {
    LinkCandidate& candidate = choice.candidates[choice.current];
    if (PeerLink* peer = link_over(choice.peer.id, choice.group_class, candidate)) {
      choice.link = peer->id;
      if (peer->announced) take_link(group, node, *peer);
      return;
    }
    const bool last = choice.current + 1 == choice.candidates.size();
    if (const PeerLink* peer = dial_candidate(choice.peer, choice.group_class, candidate, last)) {
      choice.link = peer->id;
      return;
    }
  }
  choice.link.reset();
  if (group.is_away(node))
    return;  // it may have been killed again: tried again when it, or the next one, says that it is there
  const std::string failures = choice.failures();
  group.fail(choice.candidates.size() == 1 ? Code::kLink : Code::kNoBackend, -1,
             "class " + choice.group_class + ": no backend connects node " + options_.node_name +
                 " and node " + choice.peer.name +
                 (failures.empty() ? ": they have none in common" : ": " + failures));
}

void Engine::take_link(EngineGroup& group, uint32_t node, PeerLink& peer) {
  LinkChoice& choice = choices_[{group.id(), node}];
  choice.link = peer.id;
  choice.dialled_by = Deadline::never();
  choice.chosen = backends_[peer.backend].name;
  if (!choice.dials && options_.index < choice.peer.rails.size())
    peer.ends = choice.peer.rails[options_.index];
  tell_link_up(group, node, peer);
}

void Engine::candidate_failed(const LinkId& link, const Status& why) {
  const auto next = [&](EngineGroup& group, uint32_t node, LinkChoice& choice) {
    choice.link.reset();
    choice.candidates[choice.current++].failure = why.message();
    if (choice.current < choice.candidates.size()) {
      HDT_LOG_WARN("class {}: node {} is not reached over {}, next is {} {}", choice.group_class,
                   choice.peer.name, choice.candidates[choice.current - 1].backend,
                   choice.candidates[choice.current].backend, LogTag{.node = options_.node_name});
    }
    try_candidates(group, node);
  };
  // Each for itself: a group that could not get its next candidate fails, and does not wait for one.
  for (auto& [whom, choice] : choices_) {
    if (!choice.dials || choice.link != link || !choice.chosen.empty()) continue;
    EngineGroup* group = group_of(whom.first);
    if (group == nullptr || group->context().failed()) continue;
    contain(*group, [&, node = whom.second, &waits = choice] { next(*group, node, waits); });
    touch(group);
  }
}

void Engine::forget_choices(const EngineGroup& group) {
  for (uint32_t node = 0; node < group.context().nodes.size(); ++node) {
    const auto found = choices_.find({group.id(), node});
    if (found == choices_.end()) continue;
    const std::pair<std::string, std::string> past{found->second.peer.name, found->second.group_class};
    if (past_choices_.size() < kMaxPastChoices || past_choices_.contains(past)) {
      past_choices_[past] = std::move(found->second);
    }
    choices_.erase(found);
  }
}

nlohmann::json Engine::explain_link(const std::string& node, const Viewer& viewer) const {
  std::map<std::pair<std::string, std::string>, const LinkChoice*> latest;
  // Whose the groups were that have ended is not known any more.
  if (viewer.all) {
    for (const auto& [whom, choice] : past_choices_) latest[whom] = &choice;
  }
  for (const auto& [whom, choice] : choices_) {
    const auto group = group_by_id_.find(whom.first);
    const bool seen = viewer.all || (group != group_by_id_.end() && viewer.sees(group->second->users()));
    if (seen) latest[{choice.peer.name, choice.group_class}] = &choice;
  }
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [whom, choice] : latest) {
    if (whom.first != node) continue;
    nlohmann::json entry = choice->report();
    entry["rails_up"] = nlohmann::json::array();
    const auto peer = choice->link ? peers_.find(*choice->link) : peers_.end();
    if (peer != peers_.end()) {
      for (const auto& rail : peer->second->link.rails()) {
        if (rail.state == transport::RailStatus::State::kUp) {
          entry["rails_up"].push_back({{"local", rail.local_address}, {"remote", rail.remote_address}});
        }
      }
    }
    json.push_back(entry);
  }
  return json;
}

}  // namespace hdt::daemon
