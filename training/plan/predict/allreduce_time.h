// allreduce_time.h: how long a reduction between nodes, and an allgather, takes when nothing else uses their
// links. The schedules that libhdt would run are played in the simulated time of the collectives' cost model.
// All functions may be called by several threads at once.
#pragma once

#include <vector>

#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// Seconds of an allreduce of `bytes` bytes of 32-bit floats. `nodes` has an entry for each node that
// takes part, at least two; an entry is an index into the cluster, and equal nodes may share one index.
//
// Up to 32 nodes the schedule is simulated. With more nodes that takes too long for a search, so the
// algorithm's closed form is used: the steps of one chunk, then the bytes over the slowest link. Answers
// of simulations are remembered, because a search asks for the same ones again and again.
double allreduce_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, double bytes);

// The same of a reduce-scatter and of an allgather with `owners` parts (hdtReduceScatterV, hdtAllGatherV).
// Their chunks follow each other, so the time is that of one reduction, or one broadcast, of all bytes in
// chunks of these. libhdt takes less, as it reduces to the owners in turn, and broadcasts from them in turn:
// up to one part of the bytes.
double reduce_scatter_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, int owners,
                              double bytes);
double all_gather_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, int owners,
                          double bytes);

// True if every link between these nodes has rates that were measured for allreduces. These are better
// than any model.
bool allreduce_measured(const PredictionInputs& inputs, const std::vector<int>& nodes);

// Seconds of the sum of a few numbers over all workers (the gradients' norm, before each update):
// recursive doubling between the nodes, and one exchange inside them if workers share a node
// (`shared_nodes`). Latencies only; the bytes take no time.
double small_sum_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, bool shared_nodes);

}  // namespace hdt::plan
