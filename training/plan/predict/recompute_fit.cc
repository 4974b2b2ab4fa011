// recompute_fit.cc: counts up the layers of all stages at once, one granularity after the other.
#include "training/plan/predict/recompute_fit.h"

#include <optional>

namespace hdt::plan {
namespace {

// A worker's stage while its recomputation is looked for.
struct Fitting {
  size_t worker = 0;
  training::Position position;
  Stage* stage = nullptr;
  double memory_bytes = 0;
  bool has_attention = false;
  // What it has in the end, and its seconds; nothing as long as it does not fit.
  std::optional<Stage> best = {};
  double best_backward = 0;
};

double backward_of(const PredictionInputs& inputs, const Plan& plan, const training::Layout& layout,
                   training::Position position) {
  double seconds = 0;
  const int chunks = plan.replicas[static_cast<size_t>(position.replica)].chunks();
  for (; position.chunk < chunks; ++position.chunk)
    seconds += stage_cost(inputs, plan, layout, position).backward;
  return seconds;
}

// Counts up from one layer, for all stages that are not done. Layers may differ, so every number is tried.
void try_granularity(const PredictionInputs& inputs, bool attention_only, const training::Layout& layout,
                     const WorkerBytes& bytes_of, std::vector<Fitting*> open, Plan& plan) {
  for (const Fitting* const fitting : open) {
    fitting->stage->recomputed_layers = 0;
    fitting->stage->attention_only = attention_only;
  }
  while (!open.empty()) {
    std::erase_if(open, [](const Fitting* fitting) {
      return fitting->stage->recomputed_layers == fitting->stage->layers;
    });
    for (const Fitting* const fitting : open) ++fitting->stage->recomputed_layers;
    if (open.empty()) return;
    const std::vector<double> bytes = bytes_of(plan);
    std::erase_if(open, [&](Fitting* fitting) {
      if (bytes[fitting->worker] > fitting->memory_bytes) return false;
      const double backward = backward_of(inputs, plan, layout, fitting->position);
      if (!fitting->best || backward < fitting->best_backward) {
        fitting->best = *fitting->stage;
        fitting->best_backward = backward;
      }
      return true;
    });
  }
}

}  // namespace

std::vector<double> fit_recomputation(const PredictionInputs& inputs, const RecomputeChoice& choice,
                                      const std::vector<int>& workers, const WorkerBytes& bytes_of,
                                      Plan& plan) {
  const training::Layout layout = plan.layout();
  std::vector<Fitting> fittings;
  for (const int worker : workers) {
    const training::Position position = layout.position_of(worker);
    Replica& replica = plan.replicas[static_cast<size_t>(position.replica)];
    Stage& stage = replica.stages[static_cast<size_t>(position.stage)];
    const Node& node = inputs.cluster.nodes[static_cast<size_t>(inputs.cluster.index_of(stage.node))];
    stage.recomputed_layers = 0;
    stage.attention_only = false;
    fittings.push_back(
        {.worker = static_cast<size_t>(worker),
         .position = position,
         .stage = &stage,
         .memory_bytes = static_cast<double>(node.memory_bytes),
         .has_attention = has_recomputed_attention(inputs.profile, inputs.model, node.device,
                                                   stage.tensor_parallel, replica.micro_batch_size)});
  }
  std::vector<double> bytes = bytes_of(plan);
  std::erase_if(fittings,
                [&](const Fitting& fitting) { return bytes[fitting.worker] <= fitting.memory_bytes; });
  if (fittings.empty() || !choice.any()) return bytes;
  // Whole layers come last: a stage that does not fit is left with them, as they save more.
  for (const bool attention_only : {true, false}) {
    if (attention_only ? !choice.attention : !choice.layers) continue;
    std::vector<Fitting*> open;
    for (Fitting& fitting : fittings) {
      if (fitting.has_attention || !attention_only) open.push_back(&fitting);
    }
    try_granularity(inputs, attention_only, layout, bytes_of, std::move(open), plan);
  }
  for (const Fitting& fitting : fittings) {
    if (fitting.best) *fitting.stage = *fitting.best;
    fitting.stage->attention_only = fitting.stage->attention_only && fitting.stage->recomputed_layers > 0;
  }
  return bytes_of(plan);
}

}  // namespace hdt::plan
