// link_chooser.cc: see link_chooser.h.
#include "daemon/group/link_chooser.h"

#include <algorithm>
#include <set>

#include "base/log.h"

namespace hdt::daemon {

namespace {

// How many choices of groups that have ended are kept for explain_link().
constexpr size_t kMaxPastChoices = 256;
// How many names that two nodes have are remembered, so that each is logged once.
constexpr size_t kMaxSharedNames = 256;
// How long, in ms, the waiting end waits beyond the time in which the dialer can try all candidates. The
// dialer knows the reason first, and sends it if anything gets through.
constexpr int64_t kDialerGraceMs = 5'000;

}  // namespace

// Null: no link to the node was ever chosen for the group here, or the group has ended.
const LinkChoice* LinkChooser::find(uint64_t group, uint32_t node) const {
  const auto found = choices_.find({group, node});
  return found == choices_.end() ? nullptr : &found->second;
}

// A link that a choice has taken or waits for must not be closed.
bool LinkChooser::wants(const LinkId& link) const {
  return std::any_of(choices_.begin(), choices_.end(),
                     [&](const auto& entry) { return entry.second.link == link; });
}

// A failure of one node fails the group, so the rest is not tried then.
void LinkChooser::connect_group(EngineGroup& group) {
  const GroupContext& context = group.context();
  warn_of_shared_names(context);
  for (uint32_t node = 0; node < context.nodes.size(); ++node) {
    if (node == context.me) continue;
    connect_node(group, node);
    if (group.context().failed()) return;
  }
}

// Two nodes of one name work, but people cannot distinguish them. Once per name: a job can make thousands of
// groups.
void LinkChooser::warn_of_shared_names(const GroupContext& context) {
  std::set<std::string> names;
  for (const NodeInfo& node : context.nodes) {
    if (names.insert(node.name).second || shared_names_.size() == kMaxSharedNames) continue;
    if (!shared_names_.insert(node.name).second) continue;
    HDT_LOG_WARN("{}: two of its nodes have the name {}, so messages do not tell them apart (node.name) {}",
                 context.name(), node.name, LogTag{.node = settings_.node_name});
  }
}

// Begins the choice of a link to the node anew: for a new group, and for the successor of the node's daemon.
void LinkChooser::connect_node(EngineGroup& group, uint32_t node) {
  const GroupContext& context = group.context();
  // 1. The candidates.
  LinkChoice& choice = choices_[{group.id(), node}];
  choice = {};
  choice.peer = context.nodes[node];
  choice.group_class = context.group_class;
  choice.dials = dials(settings_.node, settings_.node_name, choice.peer.id, choice.peer.name);
  choice.candidates = devices_.candidates(context.nodes[context.me], choice.peer, context.me < node);
  if (choice.dials) return try_candidates(group, node);
  // 2. The waiting end allows for the time that the dialer needs for all candidates, and for some more.
  const auto others = static_cast<int64_t>(std::max<size_t>(choice.candidates.size(), 1)) - 1;
  choice.dialled_by = Deadline::after_ms(
      settings_.connect_ms + others * std::min(settings_.connect_ms, Dialer::kTryMs) + kDialerGraceMs);
  // 3. The dialer may have chosen already, in which case its hello has come early.
  early_.for_hellos(choice.peer.id, group.id(), [&](const LinkId& from) {
    PeerLink* const peer = links_.find(from);
    if (peer != nullptr) take(group, node, *peer);
    return peer != nullptr;
  });
}

// If the path from the dialer does not work, the dialer cannot report that.
void LinkChooser::give_up_on_dialers() {
  for (auto& [whom, choice] : choices_) {
    if (!choice.dialled_by.expired()) continue;
    choice.dialled_by = Deadline::never();
    EngineGroup* group = groups_.find(whom.first);
    if (group == nullptr || group->ready() || group->connected(whom.second) || group->context().failed())
      continue;
    GroupTable::contain(*group, [&, &late = choice] {
      group->fail(Code::kLink, -1,
                  "class " + late.group_class + ": node " + late.peer.name + " was to connect to node " +
                      settings_.node_name + " and has not: nothing comes from " + late.peer.address +
                      " any more, or a firewall drops data connections");
    });
    groups_.touch(*group);
  }
}

// When give_up_on_dialers() has something to do.
Deadline LinkChooser::next_time() const {
  Deadline next = Deadline::never();
  for (const auto& [whom, choice] : choices_) next = Deadline::earlier(next, choice.dialled_by);
  return next;
}

// Goes on with the current candidate. If its link exists but is not up yet, link_up() or
// link_failed() follows.
void LinkChooser::try_candidates(EngineGroup& group, uint32_t node) {
  LinkChoice& choice = choices_[{group.id(), node}];
  for (; choice.current < choice.candidates.size(); ++choice.current) {
    LinkCandidate& candidate = choice.candidates[choice.current];
    if (PeerLink* peer = links_.over(choice.peer.id, choice.group_class, candidate)) {
      choice.link = peer->id;
      if (peer->announced) take(group, node, *peer);
      return;
    }
    const bool last = choice.current + 1 == choice.candidates.size();
    if (const PeerLink* peer =
            links_.dialer().dial_candidate(choice.peer, choice.group_class, candidate, last)) {
      choice.link = peer->id;
      return;
    }
  }
  choice.link.reset();
  // The successor of a suspended node may have been killed again. The next message of a successor brings
  // another attempt (meet()), until the suspension is over.
  if (group.is_suspended(node)) return;
  // With one candidate its own reason is the reason; with several there is none that counts.
  const std::string failures = choice.failures();
  group.fail(choice.candidates.size() == 1 ? Code::kLink : Code::kNoBackend, -1,
             "class " + choice.group_class + ": no backend connects node " + settings_.node_name +
                 " and node " + choice.peer.name +
                 (failures.empty() ? ": they have none in common" : ": " + failures));
}

// The choice is made: the link is up, and both ends use it for the group from now on. At the end that dials
// it is called when the link comes up; at the other end, when the group's hello comes on the link.
void LinkChooser::take(EngineGroup& group, uint32_t node, PeerLink& peer) {
  LinkChoice& choice = choices_[{group.id(), node}];
  choice.link = peer.id;
  choice.dialled_by = Deadline::never();
  choice.chosen = devices_.backend_name(peer.backend);
  // At the waiting end, the link learns where the dialer can be asked if all rails are lost.
  if (!choice.dials && settings_.index < choice.peer.rails.size())
    peer.ends = choice.peer.rails[settings_.index];
  tell_link_up(group, node, peer);
}

// Gives the group its link to the node.
void LinkChooser::tell_link_up(EngineGroup& group, uint32_t node, PeerLink& peer) {
  // 1. The node may write to the segment from here on; on_link_up() sends it the key.
  const auto key = keys_.key(group, peer.backend, peer.id.node);
  if (!key.is_ok()) return group.fail(key.status().code(), -1, key.status().message());
  group.on_link_up(node, peer.link, key.value(), peer.backend);
  // 2. The link may have been measured for another group. Otherwise it is measured when its turn comes.
  if (peer.measured) group.on_link_measured(node, peer.rates());
  measure_next(group);
  // 3. Messages that came before the group had the link.
  for (const EngineMessage& message : early_.take(peer.id, group.id())) {
    group.on_message(node, message, peer.link);
  }
}

// A group at the end that does not dial waits for its hello on this link instead.
void LinkChooser::link_up(PeerLink& peer) {
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    const auto node = node_of(*group, peer.id.node);
    if (!node || group->connected(*node)) continue;
    const LinkChoice* const choice = find(group->id(), *node);
    if (choice != nullptr && choice->dials && choice->link == peer.id)
      GroupTable::contain(*group, [&] { take(*group, *node, peer); });
  }
}

// A link is down, or has never come up. Choices that had tried it, and have not chosen it, go on with their
// next candidates. A choice that is made does not: a group whose link ends fails, or waits for a successor.
void LinkChooser::link_failed(const LinkId& link, const Status& why) {
  const auto next = [&](EngineGroup& group, uint32_t node, LinkChoice& choice) {
    choice.link.reset();
    // The reason is kept for the failure of all, and for explain_link().
    choice.candidates[choice.current++].failure = why.message();
    if (choice.current < choice.candidates.size()) {
      HDT_LOG_WARN("class {}: node {} is not reached over {}, next is {} {}", choice.group_class,
                   choice.peer.name, choice.candidates[choice.current - 1].backend,
                   choice.candidates[choice.current].backend, LogTag{.node = settings_.node_name});
    }
    try_candidates(group, node);
  };
  // Each group for itself: one that cannot get its next candidate fails, and the others get theirs.
  for (auto& [whom, choice] : choices_) {
    if (!choice.dials || choice.link != link || !choice.chosen.empty()) continue;
    EngineGroup* group = groups_.find(whom.first);
    if (group == nullptr || group->context().failed()) continue;
    GroupTable::contain(*group, [&, node = whom.second, &waits = choice] { next(*group, node, waits); });
    groups_.touch(*group);
  }
}

// Beginning a probe that has begun does nothing, so this may be called whenever something has changed.
void LinkChooser::measure_next(EngineGroup& group) {
  const auto node = group.next_to_measure();
  if (!node) return;
  for (const auto& [id, peer] : links_.all()) {
    if (peer->probe && group.uses(*node, peer->link)) peer->probe->begin();
  }
}

// At the limit, pairs of node and class that are new are not kept.
void LinkChooser::end(const EngineGroup& group) {
  for (uint32_t node = 0; node < group.context().nodes.size(); ++node) {
    const auto found = choices_.find({group.id(), node});
    if (found == choices_.end()) continue;
    const std::pair<std::string, std::string> past{found->second.peer.name, found->second.group_class};
    if (past_.size() < kMaxPastChoices || past_.contains(past)) {
      past_[past] = std::move(found->second);
    }
    choices_.erase(found);
  }
}

}  // namespace hdt::daemon
