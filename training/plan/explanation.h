// explanation.h: why a plan takes as long as it does: what binds each stage, and what would help.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/plan.h"
#include "training/plan/prediction.h"
#include "training/plan/stage_cost.h"

namespace hdt::plan {

// The largest part of a worker's step.
const char* binding_part(const WorkerTime& time);

// The step when one piece of hardware were better and the plan the same.
struct Change {
  std::string what;
  double step_seconds = 0;
};

// Every device kind of the plan a tenth faster, every link between its nodes with twice the bandwidth; the change that
// helps most comes first.
Result<std::vector<Change>> changes(const PredictionInputs& inputs, const Plan& plan);

}  // namespace hdt::plan
