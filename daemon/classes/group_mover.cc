// group_mover.cc: see group_mover.h.
#include "daemon/classes/group_mover.h"

#include <algorithm>

#include "base/log.h"

namespace hdt::daemon {

// Phase one, at the node that was asked. An obstacle in one group ends the whole change: Control then calls
// finish(false), which takes back what other groups have begun.
void GroupMover::propose(uint64_t change, const std::string& settings, const EndsOfClass& ends_of) {
  // Groups that have no other node, that are not running, or whose ranks here have all departed are not
  // changed.
  for (const auto& group : groups_.all()) {
    if (group == nullptr || group->solo() || !group->ready() || !group->has_local_ranks() ||
        group->segment().failed())
      continue;
    const auto ends = ends_of(group->context().group_class);
    if (!ends) continue;
    // A suspended node could not answer.
    if (group->anyone_suspended()) {
      return events_.on_proposed(
          change, {Code::kInvalidUsage,
                   group->context().name() + " waits for a daemon that is being started again; try again"});
    }
    forget_orphan(group->id(), change);
    // One change at a time for each group.
    if (moves_.contains(group->id())) {
      return events_.on_proposed(
          change,
          {Code::kInvalidUsage, group->context().name() + " is being moved by another change; try again"});
    }
    // Entered first: prepare() below finds the change by it.
    GroupMove& move = moves_[group->id()];
    move.change = change;
    move.asked_by = group->context().me;
    move.answered.assign(group->context().nodes.size(), false);
    group->tell_all(ClassPrepare{group->id(), change, settings});
    prepare(group->id(), change, (*ends)[settings_.index]);
  }
  // Set after all groups have been asked, so that the answers of the first ones cannot complete the
  // change.
  proposing_ = change;
  check_proposed();
}

// All nodes of all groups have answered yes. A group that has ended has no move any more and does not count.
void GroupMover::check_proposed() {
  if (!proposing_) return;
  for (const auto& [group, move] : moves_) {
    if (move.change != *proposing_ || move.answered.empty()) continue;
    if (!std::all_of(move.answered.begin(), move.answered.end(), [](bool yes) { return yes; })) return;
  }
  events_.on_proposed(*std::exchange(proposing_, std::nullopt), Status::ok());
}

// Control has decided whether this node can change: its ends after the change, or the reason why not.
void GroupMover::prepare(uint64_t id, uint64_t change, const Result<std::vector<RailEnd>>& ends) {
  EngineGroup* group = groups_.find(id);
  const auto found = moves_.find(id);
  // The change may have been given up meanwhile.
  if (group == nullptr || found == moves_.end() || found->second.change != change) return;
  if (!ends.is_ok()) return answer(*group, ends.status());
  if (group->anyone_suspended()) {
    return answer(*group, {Code::kInvalidUsage, "a daemon is being started again; try again"});
  }
  GroupMove& move = found->second;
  move.own_ends = ends.value();
  // Every other node learns where this one can be reached; any of them may be the one that dials.
  group->tell_all(ClassEnds{id, change, *move.own_ends});
  for (uint32_t node = 0; node < group->context().nodes.size(); ++node) {
    if (node == group->context().me) continue;
    find_ways(*group, node);
    if (!moves_.contains(id)) return;  // this node has answered no
  }
  check(*group);
}

// Both ends are known, so it is known what may connect the two nodes. The one that dials tries it.
void GroupMover::find_ways(EngineGroup& group, uint32_t node) {
  GroupMove& move = moves_[group.id()];
  GroupMove::Way& way = move.ways[node];
  if (!move.own_ends || !way.their_ends || !way.candidates.empty()) return;
  const GroupContext& context = group.context();
  // As if the two nodes had joined with their new ends. Only this engine's entry of `rails` is read.
  NodeInfo own{
      settings_.node, settings_.node_name, {}, std::vector<std::vector<RailEnd>>(settings_.index + 1)};
  NodeInfo peer{context.nodes[node].id, context.nodes[node].name, {}, own.rails};
  own.rails[settings_.index] = *move.own_ends;
  peer.rails[settings_.index] = *way.their_ends;
  way.candidates = devices_.candidates(own, peer, context.me < node);
  if (dials(settings_.node, settings_.node_name, peer.id, peer.name)) try_way(group, node);
}

// A link that exists may do, for example if another group has moved to it already.
void GroupMover::try_way(EngineGroup& group, uint32_t node) {
  GroupMove::Way& way = moves_[group.id()].ways[node];
  const NodeInfo& peer = group.context().nodes[node];
  for (; way.current < way.candidates.size(); ++way.current) {
    LinkCandidate& candidate = way.candidates[way.current];
    PeerLink* link = links_.over(peer.id, group.context().group_class, candidate);
    if (link == nullptr)
      link = links_.dialer().dial_candidate(peer, group.context().group_class, candidate,
                                            way.current + 1 == way.candidates.size());
    if (link == nullptr) continue;
    way.link = link->id;
    way.made = link->announced;
    return;
  }
  // All candidates have failed: this node answers no, with all reasons.
  std::string tried;
  for (const LinkCandidate& candidate : way.candidates) {
    tried += (tried.empty() ? "" : "; ") + candidate.backend + ": " + candidate.failure;
  }
  answer(group, {Code::kNoBackend, "class " + group.context().group_class + ": no backend connects node " +
                                       settings_.node_name + " and node " + peer.name +
                                       (tried.empty() ? ": they would have none in common" : ": " + tried)});
}

// A link has come up: changes that wait for it have their way to that node.
void GroupMover::link_up(const PeerLink& peer) {
  for (const auto& group : groups_.all()) {
    const auto found = group == nullptr ? moves_.end() : moves_.find(group->id());
    if (found == moves_.end()) continue;
    for (auto& [node, way] : found->second.ways) {
      if (way.link == peer.id) way.made = true;
    }
    check(*group);
  }
}

// A link has not come up: changes that wait for it try the next candidate.
void GroupMover::link_failed(const LinkId& link, const Status& why) {
  for (const auto& group : groups_.all()) {
    const auto found = group == nullptr ? moves_.end() : moves_.find(group->id());
    if (found == moves_.end()) continue;
    for (auto& [node, way] : found->second.ways) {
      if (way.link != link) continue;
      way.link.reset();
      way.made = false;
      way.candidates[way.current++].failure = why.message();
      try_way(*group, node);
      break;  // a group has one way over a link
    }
  }
}

// Answers yes when this node has done everything that the group needs before it can move: it has every
// link that it dials.
void GroupMover::check(EngineGroup& group) {
  const auto found = moves_.find(group.id());
  if (found == moves_.end() || !found->second.own_ends || found->second.told_ready) return;
  const GroupContext& context = group.context();
  for (uint32_t node = 0; node < context.nodes.size(); ++node) {
    const NodeInfo& peer = context.nodes[node];
    if (node == context.me || !dials(settings_.node, settings_.node_name, peer.id, peer.name)) continue;
    const auto way = found->second.ways.find(node);
    if (way == found->second.ways.end() || !way->second.made) return;
    if (context.peers[node].offered != nullptr) return;  // the move before is not over: one after the other
  }
  found->second.told_ready = true;
  answer(group, Status::ok());
}

// This node's answer to the one that asks. After a no the move is forgotten at once.
void GroupMover::answer(EngineGroup& group, const Status& answer) {
  GroupMove& move = moves_[group.id()];
  const uint64_t change = move.change;
  if (!move.asked_by) return;  // nobody has asked yet
  const uint32_t asked_by = *move.asked_by;
  if (asked_by == group.context().me) return on_answer(group, asked_by, change, answer);
  if (!answer.is_ok()) {
    forget(group.id());
    events_.on_commit(change, false);  // the decision of whoever asked may not reach this node
  }
  group.tell(asked_by, ClassReady{group.id(), change, answer.code(), answer.message()});
}

// An answer of this node itself comes here as well, without a message.
void GroupMover::on_answer(EngineGroup& group, uint32_t node, uint64_t change, const Status& answer) {
  // An answer to a change that is over, or that this node has not asked for, has no effect.
  const auto found = moves_.find(group.id());
  if (found == moves_.end() || found->second.change != change || found->second.answered.empty()) return;
  found->second.answered[node] = true;
  if (answer.is_ok()) return check_proposed();
  // The first no decides.
  if (proposing_ == change) proposing_.reset();
  events_.on_proposed(change,
                      {answer.code(), "node " + group.context().nodes[node].name + ": " + answer.message()});
}

// Control has decided on a change that this node has asked for.
void GroupMover::finish(uint64_t change, bool commit) {
  if (proposing_ == change) proposing_.reset();
  for (const auto& group : groups_.all()) {
    const auto found = group == nullptr ? moves_.end() : moves_.find(group->id());
    if (found == moves_.end() || found->second.change != change) continue;
    group->tell_all(ClassCommit{group->id(), change, static_cast<uint8_t>(commit ? 1 : 0)});
    if (commit) {
      move_group(*group);
    } else {
      forget(group->id());
    }
  }
}

// Numbers of changes are random, so a few of the latest are enough to recognise a message that is late.
bool GroupMover::is_over(uint64_t change) const {
  return std::find(over_.begin(), over_.end(), change) != over_.end();
}

// Messages of this change come too late from now on.
void GroupMover::remember_over(uint64_t change) {
  constexpr size_t kRemembered = 32;
  if (is_over(change)) return;
  over_.push_back(change);
  if (over_.size() > kRemembered) over_.pop_front();
}

// The new links of the change are draining, so that they end if nobody uses them.
void GroupMover::forget(uint64_t group) {
  const auto found = moves_.find(group);
  if (found == moves_.end()) return;
  remember_over(found->second.change);
  for (const auto& [node, way] : found->second.ways) {
    PeerLink* const peer = way.link ? links_.find(*way.link) : nullptr;
    if (peer != nullptr) peer->draining = true;
  }
  moves_.erase(found);
}

// Forgets a move of which only ends have come: ends of another change than `change`, whose question has
// not come. That other change was given up by a node that had no link on which to report that, or it will
// be asked to try again.
void GroupMover::forget_orphan(uint64_t group, uint64_t change) {
  const auto found = moves_.find(group);
  if (found != moves_.end() && found->second.change != change && !found->second.asked_by) forget(group);
}

// The change is committed: this node offers the new links that it has dialled. The other ends follow
// (EngineGroup::offer(), follow()).
void GroupMover::move_group(EngineGroup& group) {
  const auto found = moves_.find(group.id());
  GroupMove move = std::move(found->second);
  moves_.erase(found);
  remember_over(move.change);
  for (auto& [node, way] : move.ways) {
    LinkChoice& choice = chooser_.choice(group, node);
    // A node whose ends did not come stays as it was.
    if (way.candidates.empty()) continue;
    choice.candidates = way.candidates;
    set_ends(choice, *way.their_ends);
    // The end that does not dial waits for the hello on the new link.
    if (!choice.dials || choice.link == way.link) continue;
    PeerLink* const peer = way.link ? links_.find(*way.link) : nullptr;
    if (peer == nullptr) continue;  // it went down again: the group stays where it is
    const auto key = keys_.key(group, peer->backend, peer->id.node);
    if (!key.is_ok()) {
      HDT_LOG_WARN("{} stays on its link to node {}: {} {}", group.context().name(), choice.peer.name,
                   key.status().message(), LogTag{.node = settings_.node_name});
      continue;
    }
    // From here on the old link takes no other group. It ends when this group has moved away from it, too.
    replace_link(choice, *peer);
    choice.current = way.current;
    group.offer(node, peer->link, key.value(), peer->backend);
  }
  groups_.touch(group);
}

// Where the peer can be reached from now on, for later dials.
void GroupMover::set_ends(LinkChoice& choice, const std::vector<RailEnd>& ends) const {
  auto& rails = choice.peer.rails;
  rails.resize(std::max<size_t>(rails.size(), settings_.index + 1));
  rails[settings_.index] = ends;
}

// The choice takes the link `by`. The link that it had takes no group any more.
void GroupMover::replace_link(LinkChoice& choice, const PeerLink& by) {
  PeerLink* const old = choice.link ? links_.find(*choice.link) : nullptr;
  if (old != nullptr && old->id != by.id) old->draining = true;
  choice.link = by.id;
  choice.chosen = devices_.backend_name(by.backend);
}

// The dialer has sent its hello for a group that has a link: the group moves to this one. The commit may
// not have come yet, so the candidates are taken from the move if it is still there.
void GroupMover::follow(EngineGroup& group, uint32_t node, PeerLink& peer,
                        const transport::RegionKey& their_region) {
  const auto key = keys_.key(group, peer.backend, peer.id.node);
  if (!key.is_ok()) return group.fail(key.status().code(), -1, key.status().message());
  LinkChoice& choice = chooser_.choice(group, node);
  replace_link(choice, peer);
  if (const auto move = moves_.find(group.id()); move != moves_.end()) {
    const auto way = move->second.ways.find(node);
    if (way != move->second.ways.end() && !way->second.candidates.empty()) {
      choice.candidates = way->second.candidates;
      set_ends(choice, *way->second.their_ends);
    }
  }
  if (settings_.index < choice.peer.rails.size()) peer.ends = choice.peer.rails[settings_.index];
  group.follow(node, peer.link, key.value(), peer.backend, their_region);
}

// The messages of changes, from other nodes. Those of changes that are over have no effect.
void GroupMover::on_message(EngineGroup& group, uint32_t node, const EngineMessage& note) {
  // 1. The question. The ends of other nodes may have come before it.
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
    // Control answers with prepare(), or with on_commit(false).
    move.asked_by = node;
    events_.on_prepare(NodeChange::Asker{settings_.index, group.id(), group.context().group_class}, *prepare);
    // 2. Another node's ends.
  } else if (const auto* ends = std::get_if<ClassEnds>(&note)) {
    if (is_over(ends->change)) return;
    GroupMove& move = moves_[group.id()];
    // The question is still to come: the ends say of which change it will be.
    if (move.change == 0) move.change = ends->change;
    if (move.change != ends->change) return;
    move.ways[node].their_ends = ends->ends;
    find_ways(group, node);
    check(group);
    // 3. An answer to this node's question.
  } else if (const auto* ready = std::get_if<ClassReady>(&note)) {
    on_answer(group, node, ready->change, Status(ready->code, ready->text));
    // 4. The decision.
  } else if (const auto* commit = std::get_if<ClassCommit>(&note)) {
    const auto found = moves_.find(group.id());
    const bool under_way = found != moves_.end() && found->second.change == commit->change;
    // Any node may give a change up, since one that has failed cannot report that itself. Only the one that
    // has asked can have it done.
    if (commit->commit != 0 && (!under_way || found->second.asked_by != node)) return;
    events_.on_commit(commit->change, commit->commit != 0);
    if (!under_way) return remember_over(commit->change);
    if (found->second.asked_by == group.context().me) {
      const Status why(Code::kInvalidUsage, "a daemon is being started again; try again");
      return on_answer(group, node, commit->change, why);  // only this node commits its own change
    }
    if (commit->commit != 0) {
      move_group(group);
    } else {
      forget(group.id());
    }
  }
}

// Gives up a class change that was under way with a node that is suspended, and sends that to all other
// nodes. They need not miss that node themselves: they may have met its successor before the change
// began, and may have heard of the change from this node alone.
void GroupMover::stop(EngineGroup& group, uint32_t node) {
  const auto found = moves_.find(group.id());
  if (found == moves_.end()) return;
  // Kept before forget(), which ends the entry.
  const uint64_t change = found->second.change;
  const bool asked_here = found->second.asked_by == group.context().me;
  forget(group.id());
  group.tell_all(ClassCommit{group.id(), change, 0});
  // If another node has asked, Control forgets the change.
  if (!asked_here) return events_.on_commit(change, false);
  // If this node has asked, whoever waits for the change gets the reason.
  if (proposing_ == change) proposing_.reset();
  events_.on_proposed(change, {Code::kInvalidUsage, "the daemon of node " + group.context().nodes[node].name +
                                                        " is being started again; try again"});
}

// Ends links that groups have moved away from, or that were made for nothing. Both ends must have sent
// LinkDrained before: until then one of them may still need the link.
void GroupMover::close_drained_links() {
  std::vector<PeerLink*> ended;
  for (const auto& [id, peer] : links_.all()) {
    if (!peer->draining && !peer->drained_there) continue;
    // 1. Is it used? By a group, by a choice that waits for it, or by a change.
    bool used = false;
    for (const auto& group : groups_.all()) {
      const auto node = group == nullptr ? std::nullopt : node_of(*group, peer->id.node);
      if (!node || !group->uses(*node, peer->link)) continue;
      used = true;
      group->drop_old_links();
      groups_.touch(*group);
    }
    const auto& wanted = peer->id;
    used |= chooser_.wants(wanted);
    used |= std::any_of(moves_.begin(), moves_.end(), [&](const auto& entry) {
      return std::any_of(entry.second.ways.begin(), entry.second.ways.end(),
                         [&](const auto& way) { return way.second.link == wanted; });
    });
    if (used) continue;
    // 2. A link that never came up ends at once, except for one that reports a broken one
    //    (say_broken()).
    if (!peer->announced) {
      if (!peer->replaces) ended.push_back(peer.get());
      continue;
    }
    // 3. Everything that was written here must have arrived. Small writes are reported sent before that,
    //    so the peer is asked for its acknowledgement, once.
    if (!peer->link.settled()) {
      if (!std::exchange(peer->hurried, true)) peer->link.hurry();
      continue;
    }
    // 4. Both ends send that they need it no more; the one that dialled closes it.
    if (!std::exchange(peer->drained_here, true)) (void)peer->link.send(encode(LinkDrained{0}));
    if (peer->drained_there && !peer->paths.empty()) ended.push_back(peer.get());
  }
  // Closing may end links, which changes the table: hence the list.
  for (PeerLink* peer : ended) {
    const Status why(Code::kLink, "no group uses it any more");
    if (peer->announced) {
      peer->link.close(why);
    } else {
      links_.forget(*peer, why);
    }
  }
}

}  // namespace hdt::daemon
