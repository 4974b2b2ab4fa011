// recomputation.cc: finds the minimum number of recomputed layers.
#include "training/plan/search/recomputation.h"

#include <algorithm>
#include <cmath>

namespace hdt::plan {
namespace {

// Bytes beyond the limit; negative if there is room.
double excess(const PredictionInputs& inputs, const StageCost& cost, const MemoryLimit& limit) {
  return stage_memory_bytes(inputs, cost, limit.tensor_parallel, limit.in_flight) - limit.bytes;
}

}  // namespace

std::optional<FittedStage> fit_stage(const PredictionInputs& inputs, const RangeCosts& costs, int first,
                                     int end, const MemoryLimit& limit) {
  FittedStage fitted{costs.range(first, end), 0};
  const double missing = excess(inputs, fitted.cost, limit);
  if (missing <= 0) return fitted;
  const double saved =
      inputs.calibration.activation * limit.in_flight * static_cast<double>(costs.most_saved());
  const int layers = costs.layers(first, end);
  if (!limit.recompute || saved * layers < missing) return std::nullopt;
  // No layer saves more than `saved`, so the search can begin at missing / saved. Layers differ, and the
  // largest recomputed layer needs memory of its own, so more may be needed.
  for (int count = std::max(1, static_cast<int>(missing / saved)); count <= layers; ++count) {
    fitted = {costs.range(first, end, count), count};
    if (excess(inputs, fitted.cost, limit) <= 0) return fitted;
  }
  return std::nullopt;
}

double least_excess(const PredictionInputs& inputs, const RangeCosts& costs, int first, int end,
                    const MemoryLimit& limit) {
  const double kept = excess(inputs, costs.range(first, end), limit);
  if (!limit.recompute) return kept;
  // Recomputing everything may need more than keeping everything, where a layer's input is larger than
  // its activations.
  return std::min(kept, excess(inputs, costs.range(first, end, costs.layers(first, end)), limit));
}

}  // namespace hdt::plan
