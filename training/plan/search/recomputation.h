// recomputation.h: activations that are not kept, but computed again from a layer's input when its
// backward comes, layer by layer (Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory
// cost", 2016). Each such layer costs one forward more.
//
// The first layers of a stage are the recomputed ones. Each of them costs time, and layers of a kind
// save equally much, so the minimum number that fits is the best.
#pragma once

#include <optional>

#include "training/plan/predict/stage_cost.h"
#include "training/plan/search/search_space.h"

namespace hdt::plan {

// The memory that a stage may take on each of its devices.
struct MemoryLimit {
  double bytes = 0;
  // The stage's degree, and its maximum of micro-batches in flight: both determine what it needs.
  int tensor_parallel = 1;
  int in_flight = 1;
  // Whether layers may be recomputed.
  bool recompute = false;
};

// A stage that fits.
struct FittedStage {
  // Without its units and its output (RangeCosts).
  StageCost cost;
  int recomputed_layers = 0;
};

// The units [first, end) with as few recomputed layers as fit the limit; nothing if they do not fit.
std::optional<FittedStage> fit_stage(const PredictionInputs& inputs, const RangeCosts& costs, int first,
                                     int end, const MemoryLimit& limit);
// By how many bytes the units are beyond the limit in the form that needs the least memory. Not positive
// if that form fits.
double least_excess(const PredictionInputs& inputs, const RangeCosts& costs, int first, int end,
                    const MemoryLimit& limit);

}  // namespace hdt::plan
