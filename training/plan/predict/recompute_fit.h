// recompute_fit.h: gives the stages of a whole plan as few recomputed layers as fit their nodes' memory. The
// search, which asks for one stage at a time, has a faster way (search/recomputation.h).
#pragma once

#include <functional>
#include <vector>

#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// What a stage that lacks memory may compute again.
struct RecomputeChoice {
  bool layers = false;
  // Only where the profile has it (has_recomputed_attention()).
  bool attention = false;

  bool any() const { return layers || attention; }
  bool operator==(const RecomputeChoice&) const = default;
};

// By worker: the bytes that each of its devices needs.
using WorkerBytes = std::function<std::vector<double>(const Plan&)>;

// Sets the recomputation of the stages of these workers, whatever it was before. A stage takes the
// granularity whose smallest number of layers that fits has the shorter backward. A stage that fits with
// neither recomputes all of its layers, as far as `choice` allows any. A stage's memory must not depend on
// other stages' recomputation. Returns the bytes of all workers.
std::vector<double> fit_recomputation(const PredictionInputs& inputs, const RecomputeChoice& choice,
                                      const std::vector<int>& workers, const WorkerBytes& bytes_of,
                                      Plan& plan);

}  // namespace hdt::plan
