// predictor.h: the time and the memory of one training step of a plan.
#pragma once

#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/prediction.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// kConfig when the plan cannot run (plan.h, step_simulation.h). Whether it fits memory: see memory_excess.
Result<Prediction> predict(const PredictionInputs& inputs, const Plan& plan);

// The step alone: what a search asks for many plans.
Result<double> predict_seconds(const PredictionInputs& inputs, const Plan& plan);
// Of a plan that check_plan has accepted: what a fit asks again and again.
Result<double> predict_checked_seconds(const PredictionInputs& inputs, const Plan& plan);

// By worker: what each of its devices needs. The plan must be one that can run.
std::vector<double> peak_memory_bytes(const PredictionInputs& inputs, const Plan& plan);

// What a worker's memory is made of, whatever the calibration's factors of memory are.
struct WorkerMemory {
  StageCost cost;
  int tensor_parallel = 1;
  int in_flight = 1;

  double bytes(const PredictionInputs& inputs) const;
};
std::vector<WorkerMemory> worker_memory(const PredictionInputs& inputs, const Plan& plan);

// The worker that lacks most memory, and by how much on each of its devices; bytes 0: all fit.
struct MemoryExcess {
  int worker = 0;
  double bytes = 0;
};
MemoryExcess memory_excess(const Cluster& cluster, const Plan& plan, const Prediction& prediction);

}  // namespace hdt::plan
