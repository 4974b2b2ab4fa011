// explanation.h: why a plan takes as long as it does: what binds each stage, and what would help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/prediction.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// The largest part of a worker's step.
const char* binding_part(const WorkerTime& time);

// What that part hangs on: "compute", "link A - B" of a neighbour or of the slowest hop of its gradients'
// ring, "waiting for others", "optimizer"; and memory, when less than a twentieth of it is left.
std::string binding_resource(const PredictionInputs& inputs, const Plan& plan, const Prediction& prediction,
                             int worker);

// The best plan that search finds in another shape (other device kinds or sizes of stages) than the given
// one.
struct Rival {
  Plan plan;
  double step_seconds = 0;
  std::string reason;  // what takes longer in it than in the given plan, or shorter
};
// Nothing when there is no other shape.
Result<std::optional<Rival>> best_rival(const PredictionInputs& inputs, const Plan& plan);

// The step when one piece of hardware were better and the plan the same.
struct Change {
  std::string what;
  double step_seconds = 0;
};

// Every device kind of the plan a tenth faster, every link between its nodes with twice the bandwidth; the
// change that helps most comes first.
Result<std::vector<Change>> changes(const PredictionInputs& inputs, const Plan& plan);

}  // namespace hdt::plan
