// class_change.h: the state of a change of a class while its groups run, over all nodes of those groups
// (docs/design/classes.md). It is a two-phase commit:
//
// 1. The node that was asked sends ClassPrepare for each of its groups. Every node checks whether it can
//    change, opens the devices that it lacks, and sends its new ends; the nodes that dial make the new
//    links. Each answers ClassReady.
// 2. When all have answered that they can, the node that asked sends ClassCommit, and each pair of nodes
//    moves its groups from one link to the other without a pause (GroupPeer in group_context.h). If any
//    cannot, the change is forgotten everywhere.
//
// ClassChanges (control/class_changes.h) decides for a node: configuration, backends, devices. GroupMover
// (group_mover.h) makes links and moves groups.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "daemon/links/backend_plan.h"
#include "daemon/links/link_choice.h"

namespace hdt::daemon {

// Where this node can be reached after the change, for groups of a class: its ends by engine. Nothing:
// the class stays as it is. Copies what it needs, so engines call it on their threads.
using EndsOfClass =
    std::function<std::optional<std::vector<std::vector<RailEnd>>>(const std::string& group_class)>;

// A change of one group. Owned by the engine that has the group; the engine's thread.
struct GroupMove {
  // the number of the change, the same on all nodes
  uint64_t change = 0;
  // the node that asks, by its number in the group, which may be this one; nothing: its ClassPrepare is
  // still to come
  std::optional<uint32_t> asked_by;
  // this node has sent its ClassReady
  bool told_ready = false;
  // this engine's ends after the change; nothing: the control thread has not agreed yet
  std::optional<std::vector<RailEnd>> own_ends;
  // The new link to one node of the group.
  struct Way {
    // the ClassEnds of that node; nothing: they have not come
    std::optional<std::vector<RailEnd>> their_ends;
    // on the node that dials: the links that are possible, the best first
    std::vector<LinkCandidate> candidates;
    // on the node that dials: the candidate that is tried
    size_t current = 0;
    // on the node that dials: the link of that candidate
    std::optional<LinkId> link;
    // the new link is up
    bool made = false;
  };
  // by the node's number in the group
  std::map<uint32_t, Way> ways;
  // on the node that asks, by node: it can change
  std::vector<bool> answered;
};

// A change of this node; at most one at a time. Owned by Control; the control thread.
struct NodeChange {
  // random; names the change on all nodes
  uint64_t number = 0;
  // what this node's configuration and plan are after the change
  Config config;
  BackendPlan plan;
  // the engines have opened all devices that it needs
  bool open = false;
  // when this node gives it up
  Deadline until = Deadline::never();
  // Groups whose engine waits until this node knows whether it can change.
  struct Asker {
    uint32_t engine = 0;
    uint64_t group = 0;
    std::string group_class;
  };
  std::vector<Asker> askers;
  // lines "class.NAME.KEY=VALUE" that were asked for; "": the nodes go by their files
  std::string settings;
  // all classes become as in the file
  bool from_file = false;
  // These two matter on the node that asks all others.
  //
  // engines that have not reported yet that all nodes of their groups can change
  size_t engines_left = 0;
  // gets the outcome; empty: another node asks
  std::function<void(const Status&)> done;
};

}  // namespace hdt::daemon
