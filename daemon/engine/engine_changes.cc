// A class changes (class_change.h): the engine's part. New links are made beside those in use; groups move
// when all nodes can.
#include <algorithm>

#include "base/log.h"
#include "daemon/engine/engine.h"

namespace hdt::daemon {

Status Engine::open_nic(const BackendNic& nic) {
  const auto& [backend, info] = nic;
  const auto wrong = [&, name = backend](const Status& why) {
    return Status(why.code(), name == kTcp
                                  ? why.message()
                                  : "backend " + name + " on " + name_of(info) + ": " + why.message());
  };
  auto open = std::find_if(backends_.begin(), backends_.end(),
                           [&](const auto& known) { return known.name == nic.backend; });
  if (open == backends_.end()) {
    auto made = options_.make_backend(backend);
    if (!made.is_ok()) return made.status();
    made.value()->limit_strangers(options_.strangers);
    backends_.push_back({backend, made.take(), devices_.size(), std::nullopt});
    open = backends_.end() - 1;
  }
  auto device = open->backend->open(info);
  auto address = device.is_ok() ? device.value()->listen(0) : Result<std::string>(device.status());
  if (!address.is_ok()) {
    if (open->first_device == devices_.size()) backends_.pop_back();
    return wrong(address.status());
  }
  rail_ends_.push_back({backend, info.name, address.take()});
  backend_of_.push_back(static_cast<uint32_t>(open - backends_.begin()));
  watch_device(*device.value());
  devices_.push_back(device.take());
  return Status::ok();
}

Status Engine::open_more(const std::vector<BackendNic>& nics) {
  for (const BackendNic& nic : nics) {
    HDT_RETURN_IF_ERROR(open_nic(nic));
    options_.nics.push_back(nic);
  }
  return Status::ok();
}

void Engine::set_policies(std::function<transport::SharePolicy(const std::string&)> policy_of) {
  options_.policy_of = std::move(policy_of);
  for (auto& [address, share] : nic_shares_) {
    for (const auto& [id, peer] : peers_)
      share.set_policy(peer->group_class, options_.policy_of(peer->group_class));
  }
}

void Engine::propose(uint64_t change, const std::string& settings, const EndsOfClass& ends_of) {
  for (auto& group : groups_) {
    if (group == nullptr || group->solo() || !group->ready() || !group->has_local_ranks() ||
        group->segment().failed())
      continue;
    const auto ends = ends_of(group->context().group_class);
    if (!ends) continue;
    if (group->anyone_away()) {
      return options_.on_proposed(
          change, {Code::kInvalidUsage,
                   group->context().name() + " waits for a daemon that is being started again; try again"});
    }
    forget_orphan(group->id(), change);
    if (moves_.contains(group->id())) {
      return options_.on_proposed(
          change,
          {Code::kInvalidUsage, group->context().name() + " is being moved by another change; try again"});
    }
    GroupMove& move = moves_[group->id()];
    move.change = change;
    move.asked_by = group->context().me;
    move.answered.assign(group->context().nodes.size(), false);
    group->tell_all(ClassPrepare{group->id(), change, settings});
    prepare_move(group->id(), change, (*ends)[options_.index]);
  }
  proposing_ = change;
  check_proposed();
}

// All nodes of all groups have said yes.
void Engine::check_proposed() {
  if (!proposing_) return;
  for (const auto& [group, move] : moves_) {
    if (move.change != *proposing_ || move.answered.empty()) continue;
    if (!std::all_of(move.answered.begin(), move.answered.end(), [](bool yes) { return yes; })) return;
  }
  options_.on_proposed(*std::exchange(proposing_, std::nullopt), Status::ok());
}

void Engine::prepare_move(uint64_t id, uint64_t change, const Result<std::vector<RailEnd>>& ends) {
  EngineGroup* group = group_of(id);
  const auto found = moves_.find(id);
  if (group == nullptr || found == moves_.end() || found->second.change != change) return;
  if (!ends.is_ok()) return answer_move(*group, ends.status());
  if (group->anyone_away()) {
    return answer_move(*group, {Code::kInvalidUsage, "a daemon is being started again; try again"});
  }
  GroupMove& move = found->second;
  move.own_ends = ends.value();
  group->tell_all(ClassEnds{id, change, *move.own_ends});
  for (uint32_t node = 0; node < group->context().nodes.size(); ++node) {
    if (node == group->context().me) continue;
    find_ways(*group, node);
    if (!moves_.contains(id)) return;  // it is impossible
  }
  check_move(*group);
}

// Both ends are known: what may connect them. The dialer tries it.
void Engine::find_ways(EngineGroup& group, uint32_t node) {
  GroupMove& move = moves_[group.id()];
  GroupMove::Way& way = move.ways[node];
  if (!move.own_ends || !way.their_ends || !way.candidates.empty()) return;
  const GroupContext& context = group.context();
  NodeInfo own{options_.node, options_.node_name, {}, std::vector<std::vector<RailEnd>>(options_.index + 1)};
  NodeInfo peer{context.nodes[node].id, context.nodes[node].name, {}, own.rails};
  own.rails[options_.index] = *move.own_ends;
  peer.rails[options_.index] = *way.their_ends;
  way.candidates = candidates_between(own, peer, context.me < node);
  if (dials(options_.node, options_.node_name, peer.id, peer.name)) try_way(group, node);
}

void Engine::try_way(EngineGroup& group, uint32_t node) {
  GroupMove::Way& way = moves_[group.id()].ways[node];
  const NodeInfo& peer = group.context().nodes[node];
  for (; way.current < way.candidates.size(); ++way.current) {
    LinkCandidate& candidate = way.candidates[way.current];
    PeerLink* link = link_over(peer.id, group.context().group_class, candidate);
    if (link == nullptr)
      link = dial_candidate(peer, group.context().group_class, candidate,
                            way.current + 1 == way.candidates.size());
    if (link == nullptr) continue;
    way.link = link->id;
    way.made = link->announced;
    return;
  }
  std::string tried;
  for (const LinkCandidate& candidate : way.candidates) {
    tried += (tried.empty() ? "" : "; ") + candidate.backend + ": " + candidate.failure;
  }
  answer_move(group,
              {Code::kNoBackend, "class " + group.context().group_class + ": no backend connects node " +
                                     options_.node_name + " and node " + peer.name +
                                     (tried.empty() ? ": they would have none in common" : ": " + tried)});
}

void Engine::move_link_made(const PeerLink& peer) {
  for (auto& group : groups_) {
    const auto found = group == nullptr ? moves_.end() : moves_.find(group->id());
    if (found == moves_.end()) continue;
    for (auto& [node, way] : found->second.ways) {
      if (way.link == peer.id) way.made = true;
    }
    check_move(*group);
  }
}

void Engine::move_link_failed(const LinkId& link, const Status& why) {
  for (auto& group : groups_) {
    const auto found = group == nullptr ? moves_.end() : moves_.find(group->id());
    if (found == moves_.end()) continue;
    for (auto& [node, way] : found->second.ways) {
      if (way.link != link) continue;
      way.link.reset();
      way.made = false;
      way.candidates[way.current++].failure = why.message();
      try_way(*group, node);
      break;
    }
  }
}

// Everything that this node has to do for the group before it can move.
void Engine::check_move(EngineGroup& group) {
  const auto found = moves_.find(group.id());
  if (found == moves_.end() || !found->second.own_ends || found->second.told_ready) return;
  const GroupContext& context = group.context();
  for (uint32_t node = 0; node < context.nodes.size(); ++node) {
    const NodeInfo& peer = context.nodes[node];
    if (node == context.me || !dials(options_.node, options_.node_name, peer.id, peer.name)) continue;
    const auto way = found->second.ways.find(node);
    if (way == found->second.ways.end() || !way->second.made) return;
    if (context.peers[node].offered != nullptr) return;  // the move before is not over: one after the other
  }
  found->second.told_ready = true;
  answer_move(group, Status::ok());
}

// This node's answer to the one that asked. After a no the move is forgotten at once.
void Engine::answer_move(EngineGroup& group, const Status& answer) {
  GroupMove& move = moves_[group.id()];
  const uint64_t change = move.change;
  if (!move.asked_by) return;  // nobody has asked yet
  const uint32_t asked_by = *move.asked_by;
  if (asked_by == group.context().me) return on_move_answer(group, asked_by, change, answer);
  if (!answer.is_ok()) {
    forget_move(group.id());
    options_.on_commit(change, false);  // the word of who asked may not reach this node
  }
  group.tell(asked_by, ClassReady{group.id(), change, answer.code(), answer.message()});
}

void Engine::on_move_answer(EngineGroup& group, uint32_t node, uint64_t change, const Status& answer) {
  const auto found = moves_.find(group.id());
  if (found == moves_.end() || found->second.change != change || found->second.answered.empty()) return;
  found->second.answered[node] = true;
  if (answer.is_ok()) return check_proposed();
  if (proposing_ == change) proposing_.reset();
  options_.on_proposed(change,
                       {answer.code(), "node " + group.context().nodes[node].name + ": " + answer.message()});
}

// The end of a change that this node asked for.
void Engine::finish_change(uint64_t change, bool commit) {
  if (proposing_ == change) proposing_.reset();
  for (auto& group : groups_) {
    const auto found = group == nullptr ? moves_.end() : moves_.find(group->id());
    if (found == moves_.end() || found->second.change != change) continue;
    group->tell_all(ClassCommit{group->id(), change, static_cast<uint8_t>(commit ? 1 : 0)});
    if (commit) {
      move_group(*group);
    } else {
      forget_move(group->id());
    }
  }
}

bool Engine::is_over(uint64_t change) const {
  return std::find(over_.begin(), over_.end(), change) != over_.end();
}

// What is said of it from now on comes too late.
void Engine::remember_over(uint64_t change) {
  constexpr size_t kRemembered = 32;
  if (is_over(change)) return;
  over_.push_back(change);
  if (over_.size() > kRemembered) over_.pop_front();
}

void Engine::forget_move(uint64_t group) {
  const auto found = moves_.find(group);
  if (found == moves_.end()) return;
  remember_over(found->second.change);
  for (const auto& [node, way] : found->second.ways) {
    const auto peer = way.link ? peers_.find(*way.link) : peers_.end();
    if (peer != peers_.end()) peer->second->superseded = true;
  }
  moves_.erase(found);
}

// Ends of another change than this one, whose own word has not come: it was given up by a node that had no
// link to this one any more to say so, or it will be told to try again.
void Engine::forget_orphan(uint64_t group, uint64_t change) {
  const auto found = moves_.find(group);
  if (found != moves_.end() && found->second.change != change && !found->second.asked_by) forget_move(group);
}

void Engine::move_group(EngineGroup& group) {
  const auto found = moves_.find(group.id());
  GroupMove move = std::move(found->second);
  moves_.erase(found);
  remember_over(move.change);
  for (auto& [node, way] : move.ways) {
    LinkChoice& choice = choices_[{group.id(), node}];
    if (way.candidates.empty()) continue;
    choice.candidates = way.candidates;
    set_ends(choice, *way.their_ends);
    if (!choice.dials || choice.link == way.link) continue;
    const auto peer = way.link ? peers_.find(*way.link) : peers_.end();
    if (peer == peers_.end()) continue;  // it was lost again: the group stays where it is
    const auto key = group_key(group.id(), peer->second->backend, peer->first.node);
    if (!key.is_ok()) {
      HDT_LOG_WARN("{} stays on its link to node {}: {} {}", group.context().name(), choice.peer.name,
                   key.status().message(), LogTag{.node = options_.node_name});
      continue;
    }
    supersede(choice, *peer->second);
    choice.current = way.current;
    group.offer(node, peer->second->link, key.value(), peer->second->backend);
  }
  touch(&group);
}

void Engine::set_ends(LinkChoice& choice, const std::vector<RailEnd>& ends) const {
  auto& rails = choice.peer.rails;
  rails.resize(std::max<size_t>(rails.size(), options_.index + 1));
  rails[options_.index] = ends;
}

void Engine::supersede(LinkChoice& choice, const PeerLink& by) {
  const auto old = choice.link ? peers_.find(*choice.link) : peers_.end();
  if (old != peers_.end() && old->first != by.id) old->second->superseded = true;
  choice.link = by.id;
  choice.chosen = backends_[by.backend].name;
}

// The dialer has said hello for a group that has a link to it: the group moves to this one.
void Engine::follow(EngineGroup& group, uint32_t node, PeerLink& peer,
                    const transport::RegionKey& their_region) {
  const auto key = group_key(group.id(), peer.backend, peer.id.node);
  if (!key.is_ok()) return group.fail(key.status().code(), -1, key.status().message());
  LinkChoice& choice = choices_[{group.id(), node}];
  supersede(choice, peer);
  if (const auto move = moves_.find(group.id()); move != moves_.end()) {
    const auto way = move->second.ways.find(node);
    if (way != move->second.ways.end() && !way->second.candidates.empty()) {
      choice.candidates = way->second.candidates;
      set_ends(choice, *way->second.their_ends);
    }
  }
  if (options_.index < choice.peer.rails.size()) peer.ends = choice.peer.rails[options_.index];
  group.follow(node, peer.link, key.value(), peer.backend, their_region);
}

void Engine::on_change_note(EngineGroup& group, uint32_t node, const Note& note) {
  if (const auto* prepare = std::get_if<ClassPrepare>(&note)) {
    forget_orphan(group.id(), prepare->change);
    const auto known = moves_.find(group.id());  // the ends of others may have come before
    if (is_over(prepare->change) ||
        (known != moves_.end() && (known->second.change != prepare->change || known->second.own_ends))) {
      return group.tell(node, ClassReady{group.id(), prepare->change, Code::kInvalidUsage,
                                         "another change is under way; try again"});
    }
    GroupMove& move = moves_[group.id()];
    move.change = prepare->change;
    move.asked_by = node;
    options_.on_prepare(NodeChange::Asker{options_.index, group.id(), group.context().group_class}, *prepare);
  } else if (const auto* ends = std::get_if<ClassEnds>(&note)) {
    if (is_over(ends->change)) return;
    GroupMove& move = moves_[group.id()];
    if (move.change == 0) move.change = ends->change;
    if (move.change != ends->change) return;
    move.ways[node].their_ends = ends->ends;
    find_ways(group, node);
    check_move(group);
  } else if (const auto* ready = std::get_if<ClassReady>(&note)) {
    on_move_answer(group, node, ready->change, Status(ready->code, ready->text));
  } else if (const auto* commit = std::get_if<ClassCommit>(&note)) {
    const auto found = moves_.find(group.id());
    const bool under_way = found != moves_.end() && found->second.change == commit->change;
    // Any node may give a change up, as one that was lost cannot say so itself; only the one that asked can
    // have it done.
    if (commit->commit != 0 && (!under_way || found->second.asked_by != node)) return;
    options_.on_commit(commit->change, commit->commit != 0);
    if (!under_way) return remember_over(commit->change);
    if (found->second.asked_by == group.context().me) {
      const Status why(Code::kInvalidUsage, "a daemon is being started again; try again");
      return on_move_answer(group, node, commit->change, why);  // nobody but the one that asked commits it
    }
    if (commit->commit != 0) {
      move_group(group);
    } else {
      forget_move(group.id());
    }
  }
}

// Links that groups have moved away from, or were made for nothing, end when both sides say that they need
// them no more.
void Engine::retire_links() {
  std::vector<PeerLink*> ended;
  for (auto& [id, peer] : peers_) {
    if (!peer->superseded && !peer->unused_there) continue;
    bool used = false;
    for (auto& group : groups_) {
      const auto node = group == nullptr ? std::nullopt : node_in(*group, *peer);
      if (!node || !group->uses(*node, peer->link)) continue;
      used = true;
      group->drop_old_links();
      touch(group.get());
    }
    const auto& wanted = peer->id;
    used |= std::any_of(choices_.begin(), choices_.end(),
                        [&](const auto& entry) { return entry.second.link == wanted; });
    used |= std::any_of(moves_.begin(), moves_.end(), [&](const auto& entry) {
      return std::any_of(entry.second.ways.begin(), entry.second.ways.end(),
                         [&](const auto& way) { return way.second.link == wanted; });
    });
    if (used) continue;
    if (!peer->announced) {
      if (!peer->replaces) ended.push_back(peer.get());
      continue;
    }
    if (!peer->link.settled()) {
      if (!std::exchange(peer->hurried, true)) peer->link.hurry();
      continue;
    }
    if (!std::exchange(peer->unused_here, true)) (void)peer->link.send(encode(LinkUnused{0}));
    if (peer->unused_there && !peer->paths.empty()) ended.push_back(peer.get());
  }
  for (PeerLink* peer : ended) {
    const Status why(Code::kLink, "no group uses it any more");
    if (peer->announced) {
      peer->link.close(why);
    } else {
      forget_peer(*peer, why);
    }
  }
}

}  // namespace hdt::daemon
