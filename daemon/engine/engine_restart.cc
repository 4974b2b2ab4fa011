// Daemons that were started again, as an engine meets them (docs/design/restart.md). The successor of a
// lost daemon says that it is there (peer_rediscovery.h); Control calls meet() for each group that it names.
// The successor then takes the place of its predecessor in the group, and the two nodes connect as when a
// group is made.
//
// Order: all links to the predecessor must be down before the group connects to the successor. A byte of
// the predecessor that still lands would otherwise come after this node has reported what it has.
#include <algorithm>

#include "base/log.h"
#include "daemon/engine/engine.h"

namespace hdt::daemon {

// The steps: check that the successor may have the place; if it is known already, connect again where
// nothing is being tried; otherwise end the links to the predecessor, and take the successor in when
// they are down.
std::optional<Engine::Met> Engine::meet(uint64_t id, uint32_t me, uint32_t from, const NodeInfo& own,
                                        const NodeInfo& info, bool tell_failure) {
  EngineGroup* group = group_of(id);
  if (group == nullptr) return {};
  const GroupContext& context = group->context();
  Met met{Status::ok(), -1};
  // The node's name says who had the place, because the node id is another one at each start. In a group
  // that was adopted neither is known yet.
  const auto is_other = [&](const NodeInfo& known) {
    return known.id != NodeId{} && known.name != info.name;
  };
  if (me != context.me || from >= context.nodes.size() || from == me || is_other(context.nodes[from])) {
    met.failure = Status(Code::kInvalidArgument,
                         "node " + info.name + " takes another place in " + context.name() + " than it had");
    return met;
  }
  if (info.rails.size() <= options_.index) {
    met.failure =
        Status(Code::kConfig, "node " + info.name + " has fewer engine threads than the group needs");
    return met;
  }
  // A group that has failed is not connected any more, unless the other node is to hear of the failure.
  if (context.failed()) {
    met.failure = context.failure();
    met.rank = context.failed_rank();
    if (!tell_failure) return met;
  }
  // Both ends as the class has them now.
  group->set_node(me, own);
  const NodeId known = context.nodes[from].id;
  if (known == info.id) {
    // Sent again, as nothing has come of it yet. The group is connected again if nothing is being tried.
    const auto choice = choices_.find({id, from});
    const bool tried =
        choice != choices_.end() && choice->second.link && peers_.contains(*choice->second.link);
    if (group->is_away(from) && !group->connected(from) && !tried) {
      group->set_node(from, info);
      connect_node(*group, from);
    }
    return met;
  }
  successors_[{id, from}] = info;
  // What the predecessor has written must have come to its end before either node says what has come.
  std::vector<LinkId> old;
  for (const auto& [link, peer] : peers_) {
    if (link.node == known) old.push_back(link);
    // Closing one link may remove others from peers_, so they are collected first and looked up again.
  }
  for (const LinkId& link : old) {
    const auto peer = peers_.find(link);
    if (peer == peers_.end()) continue;
    peer->second->gone = true;
    peer->second->link.close({Code::kDaemonLost, "its daemon was started again"});
  }
  welcome(*group, from);
  return met;
}

// Takes the successor in, if no link to its predecessor is left. Called when it comes, and after each
// link that ends.
void Engine::welcome(EngineGroup& group, uint32_t node) {
  const auto successor = successors_.find({group.id(), node});
  const NodeId old = group.context().nodes[node].id;
  const bool lingers =
      std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) { return entry.first.node == old; });
  if (successor == successors_.end() || lingers) return;
  const NodeInfo info = std::move(successor->second);
  successors_.erase(successor);
  if (!group.is_away(node)) return;  // it has failed, or nobody needs that node any more
  group.set_node(node, info);
  connect_node(group, node);
  touch(&group);
}

// Gives up a class change that was under way with a node that is gone, and sends that to all other
// nodes. They need not miss that node themselves: they may have met its successor before the change
// began, and may have heard of the change from this node alone.
void Engine::stop_moving(EngineGroup& group, uint32_t node) {
  const auto found = moves_.find(group.id());
  if (found == moves_.end()) return;
  const uint64_t change = found->second.change;
  const bool asked_here = found->second.asked_by == group.context().me;
  forget_move(group.id());
  group.tell_all(ClassCommit{group.id(), change, 0});
  // If another node has asked, Control forgets the change.
  if (!asked_here) return options_.on_commit(change, false);
  // If this node has asked, whoever waits for the change gets the reason.
  if (proposing_ == change) proposing_.reset();
  options_.on_proposed(change,
                       {Code::kInvalidUsage, "the daemon of node " + group.context().nodes[node].name +
                                                 " is being started again; try again"});
}

}  // namespace hdt::daemon
