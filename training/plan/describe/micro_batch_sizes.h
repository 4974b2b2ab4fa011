// micro_batch_sizes.h: the times of micro-batch sizes that a plan uses and nobody measured, from those that
// were. They are computed once for a plan, before it is played; search plays measured sizes only.
//
// A layer takes h + d b for b samples: h is what does not grow with them (launches, waiting), d the device's
// time for one more. Between two measured sizes h and d are those of the line through both, so all sizes
// together make the roofline. Beyond the largest and below the smallest they are those of the two nearest;
// neither is negative there, so a time never grows faster than the samples, nor falls. What a layer keeps in
// memory follows the same lines.
#pragma once

#include <string>
#include <vector>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// Adds entries with LayerCost::derived to `profile` for each (device kind, degree, size) of the plan that has
// none and that another size was measured of. Returns a sentence for each of them that is outside of the
// measured sizes; the one where a single size was measured says that launches are unknown. Whatever else is
// wrong with the plan is left to check_plan().
std::vector<std::string> derive_micro_batch_sizes(Profile& profile, const Cluster& cluster, const Plan& plan);

}  // namespace hdt::plan
