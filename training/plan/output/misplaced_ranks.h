// misplaced_ranks.h: whether a job's ranks were started where its plan has their stages.
#pragma once

#include <string>
#include <vector>

#include "training/plan/describe/plan.h"

namespace hdt::plan {

// Where a rank of a running job is.
struct RankPlace {
  int node = 0;      // equal for ranks of one node, whatever it is called
  std::string host;  // its host name
};

// What differs, as a part of a sentence, for example "rank 2, whose stage is on node 'b', runs on 'a'"; "" if
// every rank is where the plan has its stage. `places` has one entry for each worker of the plan, by rank.
//
// The names of a plan's nodes may be host names, or any others: a cluster's file is often written before
// there is a cluster. They are taken for host names if a rank runs on a host that is called so, up to the
// first dot. Otherwise only this is compared: stages of one node are together, those of two nodes are not.
std::string misplaced_ranks(const Plan& plan, const std::vector<RankPlace>& places);

}  // namespace hdt::plan
