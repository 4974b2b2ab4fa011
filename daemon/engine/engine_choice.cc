// Which link a group takes to each other node (link_choice.h).
//
// One of the two nodes dials (dials() in node.h). It tries its candidates one after the other:
// link_over() finds a link that exists, dial_candidate() makes one. When the link is up, the group takes
// it (take_link()) and sends its hello on it. The other node waits; the hello shows it the choice. If
// the dialer does not come in time, the group fails there.
#include <algorithm>
#include <set>

#include "base/log.h"
#include "daemon/engine/engine.h"
#include "transports/several_connections.h"

namespace hdt::daemon {

namespace {

// The limit in ms of a dial while another candidate is left.
constexpr int64_t kTryMs = 2'000;
// How many choices of groups that have ended are kept for explain_link().
constexpr size_t kMaxPastChoices = 256;
// How long, in ms, the waiting end waits beyond the time in which the dialer can try all candidates. The
// dialer knows the reason first, and sends it if anything gets through.
constexpr int64_t kDialerGraceMs = 5'000;

// Whether the paths of a link are those of the candidate: each pair has one path or several, in the same
// order, and spares come last.
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

// A region that is registered through one device is valid on all devices of its backend.
transport::Device& Engine::device_of(uint32_t backend) { return *devices_[backends_[backend].first_device]; }

// The segment is registered with a backend when the first node is reached over it. Each node is allowed
// to write before it gets the key.
Result<transport::RegionKey> Engine::group_key(uint64_t group, uint32_t backend, const NodeId& node) {
  GroupMemory& memory = group_memory_[group];
  auto known = memory.keys.find(backend);
  if (known == memory.keys.end()) {
    ipc::Segment& segment = group_of(group)->segment();
    // As in DirectMemory::key_for(): the key has its place before the memory is registered.
    std::map<uint32_t, transport::RegionKey> fresh;
    const auto place = fresh.emplace(backend, transport::RegionKey{}).first;
    auto key = device_of(backend).register_memory(segment.data(), segment.data_bytes(), memory.memory->fd());
    if (!key.is_ok()) return key;
    place->second = key.take();
    known = memory.keys.insert(fresh.extract(place)).position;
  }
  HDT_RETURN_IF_ERROR(device_of(backend).grant(known->second, writer(node)));
  return known->second;
}

// Used when no link of the group leads to the node any more.
void Engine::withdraw(EngineGroup& group, const NodeId& node) {
  for (const auto& [backend, key] : group_memory_[group.id()].keys)
    device_of(backend).revoke(key, writer(node));
  group.revoke_direct(node);
}

PeerLink& Engine::add_peer(const LinkId& id, const std::string& name, uint32_t backend,
                           const std::string& group_class) {
  auto peer = std::make_unique<PeerLink>(id, name, backend, group_class, *this, options_.link);
  retired_.reserve(retired_.size() + peers_.size() + 1);  // so that forget_peer() needs no memory
  auto& kept = peers_[id];
  kept = std::move(peer);
  return *kept;
}

// `own_is_first`: this node comes first in the group, so its order of backends counts at both ends.
std::vector<LinkCandidate> Engine::candidates_between(const NodeInfo& own, const NodeInfo& peer,
                                                      bool own_is_first) const {
  std::vector<transport::DeviceInfo> devices;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < devices_.size(); ++i) {
    devices.push_back(options_.nics[i].info);
    addresses.push_back(rail_ends_[i].address);
  }
  // Addresses come and go, so they are asked for now. Without them nothing is known to lead nowhere, and
  // everything is tried.
  auto host = transport::OwnAddresses::now();
  if (!host.is_ok()) HDT_LOG_WARN("{} {}", host.status().message(), LogTag{.node = options_.node_name});
  return link_candidates(own, peer, own_is_first, options_.index, devices, addresses,
                         host.is_ok() ? host.take() : transport::OwnAddresses());
}

void Engine::connect_group(EngineGroup& group) {
  const GroupContext& context = group.context();
  // Two nodes of one name work, but people cannot distinguish them.
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

// Begins the choice of a link to the node anew: for a new group, and for the successor of the node's daemon.
void Engine::connect_node(EngineGroup& group, uint32_t node) {
  const GroupContext& context = group.context();
  // 1. The candidates.
  LinkChoice& choice = choices_[{group.id(), node}];
  choice = {};
  choice.peer = context.nodes[node];
  choice.group_class = context.group_class;
  choice.dials = dials(options_.node, options_.node_name, choice.peer.id, choice.peer.name);
  choice.candidates = candidates_between(context.nodes[context.me], choice.peer, context.me < node);
  if (choice.dials) return try_candidates(group, node);
  // 2. The waiting end allows for the time that the dialer needs for all candidates, and for some more.
  const auto others = static_cast<int64_t>(std::max<size_t>(choice.candidates.size(), 1)) - 1;
  choice.dialled_by = Deadline::after_ms(options_.connect_ms +
                                         others * std::min(options_.connect_ms, kTryMs) + kDialerGraceMs);
  // 3. The dialer may have chosen already, in which case its hello has come early.
  for (const EarlyMessage& early : early_) {
    const auto peer = peers_.find(early.from);
    if (early.from.node != choice.peer.id || peer == peers_.end() ||
        daemon::group_of(early.note) != group.id() || !std::holds_alternative<GroupHello>(early.note)) {
      continue;
    }
    take_link(group, node, *peer->second);
    break;
  }
}

// If the path from the dialer is dead, the dialer cannot say so.
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

// When give_up_on_dialers() has something to do.
Deadline Engine::next_dialer_time() const {
  Deadline next = Deadline::never();
  for (const auto& [whom, choice] : choices_) next = Deadline::earlier(next, choice.dialled_by);
  return next;
}

// Groups of a class whose candidates are the same share a link. A superseded link is about to end, and
// the two ends could not agree to use it again.
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

// `last`: no other candidate is left, so the dial may take its full time.
PeerLink* Engine::dial_candidate(const NodeInfo& node, const std::string& group_class,
                                 LinkCandidate& candidate, bool last) {
  // 1. The paths come before the link: a link without paths would never come up, nor end. A device that
  //    needs several connections for its speed gets as many paths (several_connections.h).
  std::vector<RailPath> paths;
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
  // 2. The link, and the dials.
  PeerLink& peer =
      add_peer({node.id, next_link_++}, node.name, backend_of_[candidate.pairs.front().device], group_class);
  peer.first_dial_ms = last ? options_.connect_ms : std::min(options_.connect_ms, kTryMs);
  peer.paths = std::move(paths);
  if (dial(peer)) return &peer;
  (void)contained("why a node is not reached", [&] { candidate.failure = peer.failures(); });
  peers_.erase(peer.id);
  return nullptr;
}

// Goes on with the current candidate. If its link exists but is not up yet, adopt() or
// candidate_failed() follows.
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
  // The successor of a suspended node may have been killed again. The next message of a successor brings
  // another attempt (meet()), until the suspension is over.
  if (group.is_away(node)) return;
  // With one candidate its own reason is the reason; with several there is none that counts.
  const std::string failures = choice.failures();
  group.fail(choice.candidates.size() == 1 ? Code::kLink : Code::kNoBackend, -1,
             "class " + choice.group_class + ": no backend connects node " + options_.node_name +
                 " and node " + choice.peer.name +
                 (failures.empty() ? ": they have none in common" : ": " + failures));
}

// The choice is made: the link is up, and both ends use it for the group from now on. At the end that dials
// it is called when the link comes up; at the other end, when the group's hello comes on the link.
void Engine::take_link(EngineGroup& group, uint32_t node, PeerLink& peer) {
  LinkChoice& choice = choices_[{group.id(), node}];
  choice.link = peer.id;
  choice.dialled_by = Deadline::never();
  choice.chosen = backends_[peer.backend].name;
  // At the waiting end, the link learns where the dialer can be asked if all rails are lost.
  if (!choice.dials && options_.index < choice.peer.rails.size())
    peer.ends = choice.peer.rails[options_.index];
  tell_link_up(group, node, peer);
}

// A link is down, or has never come up. Choices that had tried it, and have not chosen it, go on with their
// next candidates. A choice that is made does not: a group whose link ends fails, or waits for a successor.
void Engine::candidate_failed(const LinkId& link, const Status& why) {
  const auto next = [&](EngineGroup& group, uint32_t node, LinkChoice& choice) {
    choice.link.reset();
    // The reason is kept for the failure of all, and for explain_link().
    choice.candidates[choice.current++].failure = why.message();
    if (choice.current < choice.candidates.size()) {
      HDT_LOG_WARN("class {}: node {} is not reached over {}, next is {} {}", choice.group_class,
                   choice.peer.name, choice.candidates[choice.current - 1].backend,
                   choice.candidates[choice.current].backend, LogTag{.node = options_.node_name});
    }
    try_candidates(group, node);
  };
  // Each group for itself: one that cannot get its next candidate fails, and the others get theirs.
  for (auto& [whom, choice] : choices_) {
    if (!choice.dials || choice.link != link || !choice.chosen.empty()) continue;
    EngineGroup* group = group_of(whom.first);
    if (group == nullptr || group->context().failed()) continue;
    contain(*group, [&, node = whom.second, &waits = choice] { next(*group, node, waits); });
    touch(group);
  }
}

// At the limit, pairs of node and class that are new are not kept.
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

// The latest choice for each class, as several groups of a class have one each. Choices of groups that have
// ended are shown where no living one replaces them.
nlohmann::json Engine::explain_link(const std::string& node, const Viewer& viewer) const {
  std::map<std::pair<std::string, std::string>, const LinkChoice*> latest;
  // Nobody knows any more whose the groups were that have ended.
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
