// recomputation.h: activations that are not kept but computed again from a layer's input when its backward
// comes, layer by layer (Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016).
// It costs a forward more for each such layer.
//
// Of a stage the first layers are recomputed. As each costs time and all help alike, the least number that
// fits is the best one.
#pragma once

#include <optional>

#include "training/plan/predict/stage_cost.h"
#include "training/plan/search/search_space.h"

namespace hdt::plan {

// What a stage may take on each of its devices.
struct MemoryLimit {
  double bytes = 0;
  int tensor_parallel = 1;
  int in_flight = 1;
  bool recompute = false;  // whether it may
};

struct FittedStage {
  StageCost cost;  // without its units and output
  int recomputed_layers = 0;
};

// The units [first, end) with as few layers recomputed as fit; nothing when none fit.
std::optional<FittedStage> fit_stage(const PredictionInputs& inputs, const RangeCosts& costs, int first,
                                     int end, const MemoryLimit& limit);
// Bytes beyond the limit at the least that these units can take.
double least_excess(const PredictionInputs& inputs, const RangeCosts& costs, int first, int end,
                    const MemoryLimit& limit);

}  // namespace hdt::plan
