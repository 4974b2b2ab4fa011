// making_facts.h: what a daemon knows of a group that is being made, for diagnosis. Three parts of the
// daemon contribute: GroupMaker knows the node's own ranks that have asked to join; Rendezvous, if the
// daemon is the coordinator, knows all ranks that have joined; the engine knows which links are still
// missing. Plain values, sent to other daemons as JSON and judged by making_verdict.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/protocol/node.h"

namespace hdt::daemon {

// A rank that has joined, and the name of its node.
struct MakingRank {
  uint32_t rank = 0;
  std::string node;
};

// One group as one of the first two sees it. If ranks of the coordinator's own node join, that node
// reports the group twice: once with `coordinates` and once without.
struct MakingFacts {
  // The group's public name (group_name.h). Until the coordinator has drawn the group's secret it is made
  // from the key under which the ranks meet.
  std::string id;
  std::string group_class;
  // user ids of the ranks in `joined`
  std::vector<uint32_t> users;
  // the daemons of the ranks in `joined`; used for access control (viewer.h), not sent to others
  std::vector<NodeId> members;
  // True: from the coordinator, and `joined` holds the ranks of all nodes. False: `joined` holds the
  // ranks of this node only.
  bool coordinates = false;
  // the number of ranks that the group is to have
  uint32_t ranks = 0;
  std::vector<MakingRank> joined;
  // where the ranks of this node are to meet the others, as addresses; "" from the coordinator
  std::string rendezvous;
  // why the latest attempt to reach `rendezvous` failed; "" if none has failed
  std::string last_error;
  // all ranks have joined, and their nodes now connect to each other
  bool complete = false;
  // ns until the group is given up; -1: not known
  int64_t left_ns = -1;
  // one sentence of an engine for each node whose connection is missing, with the reason
  std::vector<std::string> lacks;
};

}  // namespace hdt::daemon
