// successors.cc: see successors.h.
#include "daemon/engine/successors.h"

#include <algorithm>
#include <vector>

namespace hdt::daemon {

// The steps: check that the successor may have the place; if it is known already, connect again where
// nothing is being tried; otherwise end the links to the predecessor, and take the successor in when
// they are down.
std::optional<Successors::Met> Successors::meet(uint64_t id, uint32_t me, uint32_t from, const NodeInfo& own,
                                                const NodeInfo& info, bool tell_failure) {
  EngineGroup* group = groups_.find(id);
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
  if (info.rails.size() <= settings_.index) {
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
    const LinkChoice* const choice = chooser_.find(id, from);
    const bool tried = choice != nullptr && choice->link && links_.find(*choice->link) != nullptr;
    if (group->is_suspended(from) && !group->connected(from) && !tried) {
      group->set_node(from, info);
      chooser_.connect_node(*group, from);
    }
    return met;
  }
  // A newer successor replaces one that was waiting: the older daemon has been replaced as well.
  waiting_[{id, from}] = info;
  // All writes of the predecessor must have ended before either node reports which of them arrived.
  std::vector<LinkId> old;
  for (const auto& [link, peer] : links_.all()) {
    if (link.node == known) old.push_back(link);
    // Closing one link may remove others from the table, so they are collected first and looked up again.
  }
  for (const LinkId& link : old) {
    PeerLink* const peer = links_.find(link);
    if (peer == nullptr) continue;
    peer->daemon_ended = true;
    peer->link.close({Code::kDaemonLost, "its daemon was started again"});
  }
  take_in(*group, from);
  return met;
}

// Takes the successor in, if no link to its predecessor is left. Called when it comes, and after each
// link that ends.
void Successors::take_in(EngineGroup& group, uint32_t node) {
  const auto successor = waiting_.find({group.id(), node});
  const NodeId old = group.context().nodes[node].id;
  const bool lingers = links_.leads_to(old);
  if (successor == waiting_.end() || lingers) return;
  const NodeInfo info = std::move(successor->second);
  waiting_.erase(successor);
  if (!group.is_suspended(node)) return;  // it has failed, or nobody needs that node any more
  group.set_node(node, info);
  chooser_.connect_node(group, node);
  groups_.touch(group);
}

// Any group may have waited for the link, also one that did not use it itself: links belong to classes, and
// all links to the predecessor must be down.
void Successors::on_link_down() {
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    for (uint32_t node = 0; node < group->context().nodes.size(); ++node) {
      if (!waiting_.contains({group->id(), node})) continue;
      GroupTable::contain(*group, [&] { take_in(*group, node); });
    }
  }
}

// The group has ended, so nobody will meet in it any more.
void Successors::end(uint64_t group) {
  std::erase_if(waiting_, [group](const auto& entry) { return entry.first.first == group; });
}

}  // namespace hdt::daemon
