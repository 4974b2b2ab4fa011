// search.h: the plan with the least predicted step.
//
// On clusters of up to kMostDevicesOfAllShapes devices: branch and bound over all shapes (search_space.h),
// all ways to give out micro-batches and all layer splits. What is cut off cannot be better, because of a
// lower bound that holds for every schedule: a stage needs its forward and its backward for each micro-batch;
// before its first forward, the first micro-batch passes all earlier stages and links, and after its last
// backward the last gradient passes them back. The first plan of a shape, by which later ones are cut off,
// comes from dynamic programming (layer split with the least longest stage) and from giving each micro-batch
// to the replica that ends first with it. That count is the best for the bound, by exchange: moving a
// micro-batch from any other count's longest replica never makes it longer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// Beyond so many devices the shapes are too many to look at each.
constexpr int kMostDevicesOfAllShapes = 12;

struct SearchOptions {
  int64_t global_batch_size = 0;
  int most_replicas = 100'000;
  Runtime runtime;
  // The schedules to choose from; none: that of `runtime`.
  std::vector<ScheduleKind> schedules;
  // Stages that lack memory may recompute layers (recomputation.h), with schedules whose backward is in one.
  bool recompute = false;
  // After so many played steps, or a thousand times as many looks at partial plans, the best so far is taken.
  int64_t most_predictions = 100'000;
};

// What is known about plans that were not played.
enum class SearchProof {
  kBest,        // all shapes were searched: none has a shorter step
  kEndedEarly,  // at most_predictions
  kNone,        // a large cluster: the plan was put together from classes of equal replicas (class_search.h)
};

struct SearchResult {
  Plan plan;
  double step_seconds = 0;
  // The best of another shape that was played, if any: other device kinds or sizes of stages.
  std::optional<Plan> runner_up;
  double runner_up_seconds = 0;
  SearchProof proof = SearchProof::kNone;
  int64_t predictions = 0;  // steps played
};

// The global batch at the sum of the rates that each worker would reach alone with the whole model, at the
// best degree and micro-batch size for its node: what a plan on all these devices would take if nothing were
// lost.
double ideal_seconds(const PredictionInputs& inputs, int64_t global_batch_size);

// kConfig with the reason when nothing fits: how much memory is missing at least, and where.
Result<SearchResult> search(const PredictionInputs& inputs, const SearchOptions& options);

}  // namespace hdt::plan
