// explanation.h: why a plan takes as long as it does: what limits each stage, and what would help. The
// text is for people; tools/hdt-plan prints it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/prediction.h"
#include "training/plan/predict/stage_cost.h"
#include "training/plan/search/search.h"

namespace hdt::plan {

// The name of the largest part of a worker's step.
const char* binding_part(const WorkerTime& time);

// The limit of worker `worker`: "compute", "optimizer", "waiting for others", or a link by the kinds of
// its ends. For messages it is the slower link to a neighbour, for gradients the slowest hop of the
// worker's rings. ", memory" is added if less than a twentieth of the device's memory is free.
std::string binding_resource(const PredictionInputs& inputs, const Plan& plan, const Prediction& prediction,
                             int worker);

// Workers that do the same at the same time: the same stage of replicas that are equal (equal_replicas.h).
struct WorkerGroup {
  std::vector<int> replicas;  // increasing
  int stage = 0;
  int worker = 0;  // the one of the first replica
};
// All workers of the plan, by their first replica, then by stage. The plan must have passed check_plan().
std::vector<WorkerGroup> worker_groups(const PredictionInputs& inputs, const Plan& plan);

// The best plan of another shape (other device kinds or other sizes of stages) that the search has
// played.
struct Rival {
  Plan plan;
  double step_seconds = 0;
  // The part of the step that takes more time in it than in the given plan, or less if it is the faster
  // one; or that both take the same time.
  std::string reason;
};
// The result of the search for a rival.
struct RivalSearch {
  // Nothing if no plan of another shape was played.
  std::optional<Rival> rival;
  // Placements that were not played (search.h).
  std::vector<LeftOut> left_out;
};
// Searches anew, which takes as long as `hdt-plan search`. kConfig if the search finds no plan or a plan
// cannot run.
Result<RivalSearch> best_rival(const PredictionInputs& inputs, const Plan& plan);

}  // namespace hdt::plan
