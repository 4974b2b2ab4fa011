// making_verdict.h: why groups that are being made are not complete yet: a pure function of the facts
// that nodes have reported (making_facts.h). Used by Control for hdtctl why.
#pragma once

#include <string>
#include <vector>

#include "daemon/protocol/facts.h"

namespace hdt::daemon {

// The judgement of one group that is being made.
struct MakingVerdict {
  std::string group_id, group_class;
  // the number of ranks that it is to have
  uint32_t ranks = 0;
  // the ranks that any node knows to have joined
  std::vector<MakingRank> joined;
  // the ranks that have not joined; valid if coordinator_told
  std::vector<uint32_t> missing;
  // the coordinator is among the nodes that have reported
  bool coordinator_told = false;
  // one sentence for people
  std::string sentence;
};

// One for each group that some node is making, by public name. `facts[0]` are those of the node that
// asks.
std::vector<MakingVerdict> judge_making(const std::vector<NodeFacts>& facts);

}  // namespace hdt::daemon
