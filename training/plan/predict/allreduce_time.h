// allreduce_time.h: what an allreduce between nodes takes when nothing else uses their links: the schedules
// that libhdt runs, in the simulated time of the collectives' cost model.
#pragma once

#include <vector>

#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// `nodes` are indices into the cluster, at least two, each once for each node that takes part (equal ones may
// be named by the same index). Up to 32 nodes the schedule is simulated; beyond, where that takes too long
// for a search, its closed form is used: the steps of one piece, then the bytes over the slowest link.
// Answers are remembered, as a search asks for the same ones again and again.
double allreduce_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, double bytes);

// Whether every link between these nodes has rates that were measured for allreduces: better than any model.
bool allreduce_measured(const PredictionInputs& inputs, const std::vector<int>& nodes);

// The sum of a few numbers over all workers before each update (the gradients' norm): recursive doubling
// between the nodes, and one exchange inside them where workers share a node.
double small_sum_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, bool shared_nodes);

}  // namespace hdt::plan
