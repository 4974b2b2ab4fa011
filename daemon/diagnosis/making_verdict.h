// making_verdict.h: why groups that are being made are not there yet: a pure function of what nodes have
// told.
#pragma once

#include <string>
#include <vector>

#include "daemon/protocol/facts.h"

namespace hdt::daemon {

struct MakingVerdict {
  std::string group_id, group_class;
  uint32_t ranks = 0;
  std::vector<MakingRank> joined;  // that are known of
  std::vector<uint32_t> missing;   // valid where the coordinator has told
  bool coordinator_told = false;
  std::string sentence;
};

// One for each group that some node is making. `facts[0]` are those of the node that asks.
std::vector<MakingVerdict> judge_making(const std::vector<NodeFacts>& facts);

}  // namespace hdt::daemon
