// replica_orders.h: the order of a plan's replicas, where it matters: the rings of reductions go through the
// owners in that order, so it decides which nodes are neighbours in them.
#pragma once

#include <functional>
#include <vector>

#include "training/plan/describe/plan.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// What the order of the replicas changes in a step; two orders of one plan with equal values take equally
// long. Of each reduction whose owners are on several nodes: how many hops of its ring go between which nodes
// and, where libhdt reduces, the kinds of the nodes in the order of their first owners. Empty where no
// reduction crosses nodes. The plan's nodes must be those of the cluster.
std::vector<int> order_of_rings(const PredictionInputs& inputs, const Plan& plan);

// Calls `visit` with the plan in one order of its replicas for each value of order_of_rings() but its own.
// The number of orders grows with the factorial of the replicas: for a few of them only.
void for_each_other_order(const PredictionInputs& inputs, const Plan& plan,
                          const std::function<void(Plan)>& visit);

}  // namespace hdt::plan
