// predictor.h: predicts the time and the memory of one training step of a plan. The functions keep no
// state but the memo of allreduce_time.h, so several threads may call them.
#pragma once

#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/prediction.h"
#include "training/plan/predict/stage_cost.h"
#include "training/plan/predict/state_shares.h"

namespace hdt::plan {

// Checks the plan and plays its step. kConfig if the plan cannot run (plan.h, step_simulation.h).
// Whether it fits memory is a question of its own: see memory_excess().
Result<Prediction> predict(const PredictionInputs& inputs, const Plan& plan);

// The seconds of the step alone, without memory and spans of all workers: what a search asks for many
// plans.
Result<double> predict_seconds(const PredictionInputs& inputs, const Plan& plan);
// The same for a plan that check_plan() has accepted: what a fit asks again and again.
Result<double> predict_checked_seconds(const PredictionInputs& inputs, const Plan& plan);

// By worker: the bytes that each of its devices needs. The plan must be one that check_plan() accepts.
std::vector<double> peak_memory_bytes(const PredictionInputs& inputs, const Plan& plan);

// The parts of that, by worker, numbered as in Plan::layout(). With `shares` the plan may have some of the
// replicas only: they are those of the whole plan.
std::vector<StageMemory> worker_memory(const PredictionInputs& inputs, const Plan& plan);
std::vector<StageMemory> worker_memory(const PredictionInputs& inputs, const Plan& plan,
                                       const StateShares& shares);

// The worker that lacks the most memory, and how many bytes each of its devices lacks. 0 bytes: all
// workers fit.
struct MemoryExcess {
  int worker = 0;
  double bytes = 0;
};
// Needs the prediction's peak_memory_bytes only.
MemoryExcess memory_excess(const Cluster& cluster, const Plan& plan, const Prediction& prediction);

}  // namespace hdt::plan
