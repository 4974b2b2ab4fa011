// plan_text.h: plans in a few words.
#pragma once

#include <string>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// Replicas by device kinds: "8 x (1 h200, 1 mi325x)"; "/2" is a tensor-parallel degree, "mbs 4" the
// micro-batch size.
std::string shape_text(const Plan& plan, const Cluster& cluster);
// The same with the layers of each stage: "8 x (17 h200, 15 mi325x) of 16 x 1".
std::string plan_text(const Plan& plan, const Cluster& cluster);

}  // namespace hdt::plan
