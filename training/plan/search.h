// search.h: the plan with the least predicted step.
//
// Branch and bound over all shapes (search_space.h), all ways to give out micro-batches and all layer splits. What is
// cut off cannot be better, because of a lower bound that holds for every schedule: a stage needs its forward and its
// backward for each micro-batch; before its first forward, the first micro-batch passes all earlier stages and
// links, and after its last backward the last gradient passes them back.
// The first plan of a shape, by which later ones are cut off, comes from dynamic programming (layer split with the
// least longest stage) and from giving each micro-batch to the replica that ends first with it. That count is the best for
// the bound, by exchange: moving a micro-batch from any other count's longest replica never makes it longer.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "training/plan/plan.h"
#include "training/plan/stage_cost.h"

namespace hdt::plan {

struct SearchOptions {
  int64_t global_batch_size = 0;
  int most_replicas = 64;
  Runtime runtime;
  // After so many played steps, or a thousand times as many looks at partial plans, the best so far is taken.
  int64_t most_predictions = 100'000;
};

struct SearchResult {
  Plan plan;
  double step_seconds = 0;
  bool proven = false;      // false: the search ended early
  int64_t predictions = 0;  // steps played
};

// The global batch at the sum of the rates that each worker would reach alone with the whole model, at the best degree
// and micro-batch size for its node: what a plan on all these devices would take if nothing were lost.
double ideal_seconds(const PredictionInputs& inputs, int64_t global_batch_size);

// kConfig with the reason when nothing fits: how much memory is missing at least, and where.
Result<SearchResult> search(const PredictionInputs& inputs, const SearchOptions& options);

}  // namespace hdt::plan
