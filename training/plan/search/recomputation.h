// recomputation.h: activations that are not kept, but computed again when their backward comes, layer by
// layer.
//
// - Whole layers, from their input (Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory
//   cost", 2016). Each such layer costs one forward more.
// - Attention alone, from queries, keys and values (Korthikanti et al., "Reducing activation recomputation in
//   large transformer models", 2022). A layer costs less time then, and saves less memory.
//
// The first layers of a stage are the recomputed ones. Each of them costs time, and layers of a kind
// save equally much, so the minimum number that fits is the best one of its granularity. Of both
// granularities the one with the shorter backward is taken. A stage does not mix them.
#pragma once

#include <optional>

#include "base/status.h"
#include "training/plan/predict/recompute_fit.h"
#include "training/plan/predict/stage_cost.h"
#include "training/plan/search/search_space.h"

namespace hdt::plan {

// Whether the profile has the recomputation of attention for a device kind of the cluster, so that a search
// can try it.
bool knows_recomputed_attention(const PredictionInputs& inputs);
// kConfig if attention alone is to be recomputed, and the profile lacks it.
Status check_recompute_choice(const PredictionInputs& inputs, const RecomputeChoice& choice);

// The memory that a stage may take on each of its devices.
struct MemoryLimit {
  double bytes = 0;
  // The stage's degree, and its maximum of micro-batches in flight: both determine what it needs.
  int tensor_parallel = 1;
  int in_flight = 1;
  RecomputeChoice recompute = {};
  // The part of the optimizer's states that the stage keeps: 1, or with sharded states its share.
  double state_share = 1;
};

// A stage that fits.
struct FittedStage {
  // Without its units and its output (RangeCosts).
  StageCost cost;
  int recomputed_layers = 0;
  bool attention_only = false;
};

// The units [first, end) with as few recomputed layers as fit the limit; nothing if they do not fit.
std::optional<FittedStage> fit_stage(const PredictionInputs& inputs, const RangeCosts& costs, int first,
                                     int end, const MemoryLimit& limit);
// By how many bytes the units are beyond the limit in the form that needs the least memory. Not positive
// if that form fits.
double least_excess(const PredictionInputs& inputs, const RangeCosts& costs, int first, int end,
                    const MemoryLimit& limit);

}  // namespace hdt::plan
