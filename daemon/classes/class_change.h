// class_change.h: changing a class while its groups run, over all nodes of those groups. Two phases: every
// node looks whether it can, opens what it lacks, and the nodes that dial make the new links; when all have,
// each pair of nodes moves its groups from one link to the other, without a pause (group_context.h,
// GroupPeer). If any cannot, nothing changes.
//
// control_changes.cc decides for a node: configuration, backends, devices. engine_changes.cc makes links and
// moves groups.
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

// Where this node can be reached, by engine, for groups of a class; nothing: the change is none for this
// class.
using EndsOfClass =
    std::function<std::optional<std::vector<std::vector<RailEnd>>>(const std::string& group_class)>;

// A change of one group, in an engine.
struct GroupMove {
  uint64_t change = 0;
  std::optional<uint32_t> asked_by;  // number of the node in the group; nothing: its word is still to come
  bool told_ready = false;
  std::optional<std::vector<RailEnd>>
      own_ends;  // of this engine; nothing: the control thread has not said yes yet
  struct Way {
    std::optional<std::vector<RailEnd>> their_ends;
    std::vector<LinkCandidate> candidates;
    size_t current = 0;          // dialer: the candidate that is tried
    std::optional<LinkId> link;  // dialer: of that one
    bool made = false;
  };
  std::map<uint32_t, Way> ways;  // by node
  std::vector<bool> answered;    // of the node that asked: by node
};

// A change of this node, in its control thread.
struct NodeChange {
  uint64_t number = 0;
  Config config;
  BackendPlan plan;
  bool open = false;  // the engines have all devices that it needs
  Deadline until = Deadline::never();
  // Groups whose engine waits for the word of this node.
  struct Asker {
    uint32_t engine = 0;
    uint64_t group = 0;
    std::string group_class;
  };
  std::vector<Asker> askers;
  std::string settings;    // lines "class.NAME.KEY=VALUE"
  bool from_file = false;  // all classes become as the file has them
  // Of the node that asks all others:
  size_t engines_left = 0;
  std::function<void(const Status&)> done;
};

}  // namespace hdt::daemon
