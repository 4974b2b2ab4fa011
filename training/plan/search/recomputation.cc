// recomputation.cc: finds the minimum number of recomputed layers.
#include "training/plan/search/recomputation.h"

#include <fmt/format.h>

#include <algorithm>

namespace hdt::plan {
namespace {

// Bytes beyond the limit; negative if there is room.
double excess(const PredictionInputs& inputs, const StageCost& cost, const MemoryLimit& limit) {
  return stage_memory_bytes(inputs, cost, limit.tensor_parallel, limit.in_flight, limit.state_share) -
         limit.bytes;
}

// Whether a granularity is a choice: attention must be profiled.
bool may_recompute(const RangeCosts& costs, const MemoryLimit& limit, bool attention_only) {
  return attention_only ? limit.recompute.attention && costs.has_attention() : limit.recompute.layers;
}

// The units with as few layers of one granularity as fit. `missing`: bytes, without recomputation.
std::optional<FittedStage> fit_granularity(const PredictionInputs& inputs, const RangeCosts& costs, int first,
                                           int end, const MemoryLimit& limit, double missing,
                                           bool attention_only) {
  const double saved =
      inputs.calibration.activation * limit.in_flight * static_cast<double>(costs.most_saved(attention_only));
  const int layers = costs.layers(first, end);
  if (saved * layers < missing) return std::nullopt;
  // No layer saves more than `saved`, so the search can begin at missing / saved. Layers differ, and the
  // largest recomputed layer needs memory of its own, so more may be needed.
  for (int count = std::max(1, static_cast<int>(missing / saved)); count <= layers; ++count) {
    FittedStage fitted{costs.range(first, end, count, attention_only), count, attention_only};
    if (excess(inputs, fitted.cost, limit) <= 0) return fitted;
  }
  return std::nullopt;
}

}  // namespace

bool knows_recomputed_attention(const PredictionInputs& inputs) {
  return std::ranges::any_of(inputs.profile.compute, [&](const auto& entry) {
    const ComputeKey& key = entry.first;
    return std::ranges::find(inputs.cluster.nodes, key.device, &Node::device) != inputs.cluster.nodes.end() &&
           has_recomputed_attention(inputs.profile, inputs.model, key.device, key.tensor_parallel,
                                    key.micro_batch_size);
  });
}

Status check_recompute_choice(const PredictionInputs& inputs, const RecomputeChoice& choice) {
  if (!choice.attention || choice.layers || knows_recomputed_attention(inputs)) return Status::ok();
  return {
      Code::kConfig,
      fmt::format("profile '{}': no selective_more_seconds and selective_activation_bytes of all layers for "
                  "a device of the cluster, expected them to recompute attention only: measure again "
                  "(hdt-train --profile), or recompute whole layers",
                  inputs.profile.name)};
}

std::optional<FittedStage> fit_stage(const PredictionInputs& inputs, const RangeCosts& costs, int first,
                                     int end, const MemoryLimit& limit) {
  const FittedStage kept{costs.range(first, end)};
  const double missing = excess(inputs, kept.cost, limit);
  if (missing <= 0) return kept;
  std::optional<FittedStage> best;
  for (const bool attention_only : {false, true}) {
    if (!may_recompute(costs, limit, attention_only)) continue;
    auto fitted = fit_granularity(inputs, costs, first, end, limit, missing, attention_only);
    if (fitted && (!best || fitted->cost.backward < best->cost.backward)) best = std::move(fitted);
  }
  return best;
}

double least_excess(const PredictionInputs& inputs, const RangeCosts& costs, int first, int end,
                    const MemoryLimit& limit) {
  // Recomputing everything may need more than keeping everything, where a layer's input is larger than
  // its activations.
  double least = excess(inputs, costs.range(first, end), limit);
  for (const bool attention_only : {false, true}) {
    if (!may_recompute(costs, limit, attention_only)) continue;
    const StageCost cost = costs.range(first, end, costs.layers(first, end), attention_only);
    least = std::min(least, excess(inputs, cost, limit));
  }
  return least;
}

}  // namespace hdt::plan
