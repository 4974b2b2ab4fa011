// Daemons that were started again, as an engine meets them: the successor of a lost one takes its place in a
// group, and the two connect as when a group is made.
#include <algorithm>

#include "base/log.h"
#include "daemon/engine/engine.h"

namespace hdt::daemon {

std::optional<Engine::Met> Engine::meet(uint64_t id, uint32_t me, uint32_t from, const NodeInfo& own,
                                        const NodeInfo& info, bool tell_failure) {
  EngineGroup* group = group_of(id);
  if (group == nullptr) return {};
  const GroupContext& context = group->context();
  Met met{Status::ok(), -1};
  // Who had the place is known by its name, as the node id is another one at each start; of a group that was
  // adopted neither is known yet.
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
  if (context.failed()) {
    met.failure = context.failure();
    met.rank = context.failed_rank();
    if (!tell_failure) return met;
  }
  // Both ends as the class has them now.
  group->set_node(me, own);
  const NodeId known = context.nodes[from].id;
  if (known == info.id) {
    // Said again, as nothing has come of it yet.
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
  // What its predecessor wrote must have come to its end before anything is said of what has come.
  std::vector<LinkId> old;
  for (const auto& [link, peer] : peers_) {
    if (link.node == known) old.push_back(link);
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

// A class change that was under way with a node that is gone is given up here, and all others are told: they
// need not miss that node, as they may have met its successor before the change began, nor have heard of the
// change from any but this node.
void Engine::stop_moving(EngineGroup& group, uint32_t node) {
  const auto found = moves_.find(group.id());
  if (found == moves_.end()) return;
  const uint64_t change = found->second.change;
  const bool asked_here = found->second.asked_by == group.context().me;
  forget_move(group.id());
  group.tell_all(ClassCommit{group.id(), change, 0});
  if (!asked_here) return options_.on_commit(change, false);
  if (proposing_ == change) proposing_.reset();
  options_.on_proposed(change,
                       {Code::kInvalidUsage, "the daemon of node " + group.context().nodes[node].name +
                                                 " is being started again; try again"});
}

}  // namespace hdt::daemon
