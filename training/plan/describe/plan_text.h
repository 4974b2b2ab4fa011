// plan_text.h: plans in a few words, for tables and messages. The plan's nodes must be the cluster's.
#pragma once

#include <string>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// The replicas by kinds of nodes, equal neighbours counted: "8 x (1 h200, 1 mi325x) mbs 4". "/2" after a
// kind is a tensor-parallel degree, and "mbs 4" is the micro-batch size. Two plans of one shape have the
// same text, whatever their splits are. The search counts on that to tell shapes apart.
std::string shape_text(const Plan& plan, const Cluster& cluster);
// The same with the layers of each stage, and with micro-batches x micro-batch size: "8 x (17 h200, 15
// mi325x) of 16 x 1". "9+8 h200" are the layers of a stage's chunks.
std::string plan_text(const Plan& plan, const Cluster& cluster);

}  // namespace hdt::plan
