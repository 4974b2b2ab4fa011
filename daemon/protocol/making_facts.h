// making_facts.h: what a daemon knows of a group that is being made, for diagnosis: of its own ranks that
// have asked to join, as the coordinator at which all meet, and of the links that the group needs. Plain
// values, told to other daemons as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/protocol/node.h"

namespace hdt::daemon {

struct MakingRank {
  uint32_t rank = 0;
  std::string node;
};

struct MakingFacts {
  std::string id;  // GroupFacts::id of the group
  std::string group_class;
  std::vector<uint32_t> users;  // of the ranks that have joined
  std::vector<NodeId> members;  // the daemons of those; not told to others
  bool coordinates = false;     // all ranks meet here; else `joined` are those of this node
  uint32_t ranks = 0;           // that the group is to have
  std::vector<MakingRank> joined;
  std::string rendezvous;          // where this node's ranks are to meet the others; "" of a coordinator
  std::string last_error;          // of the last attempt to reach that
  bool complete = false;           // all have joined: their nodes connect to each other
  int64_t left_ns = -1;            // until it is given up; -1: not known
  std::vector<std::string> lacks;  // sentences of an engine: which node's connection is missing, and why
};

}  // namespace hdt::daemon
