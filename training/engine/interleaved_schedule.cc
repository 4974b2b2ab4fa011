// interleaved_schedule.cc: 1F1B over several ranges of layers a stage.
#include <algorithm>

#include "training/engine/pipeline_schedule.h"

namespace hdt::training {
namespace {

// Forwards before the first backward. Those of other chunks are further apart than those of neighbours, hence
// twice as many.
int warm_up(int stages, int chunks, int stage, int micro_batches) {
  return std::min(2 * (stages - 1 - stage) + (chunks - 1) * stages, chunks * micro_batches);
}

}  // namespace

int most_in_flight_interleaved(int stages, int chunks, int stage, int micro_batches) {
  return std::min(warm_up(stages, chunks, stage, micro_batches) + 1, chunks * micro_batches);
}

std::vector<PipelineStep> interleaved_one_forward_one_backward(int stages, int chunks, int stage,
                                                               int micro_batches) {
  std::vector<PipelineStep> steps;
  // The k-th forward or backward: as many micro-batches as there are stages go through one chunk, then
  // through the next.
  const auto turn = [&](int k) {
    const int group = k / (stages * chunks);
    return PipelineStep{PipelineAction::kForward, group * stages + k % stages, k / stages % chunks};
  };
  const auto add = [&](PipelineAction action, PipelineStep step) {
    step.action = action;
    steps.push_back(step);
  };
  const auto forward = [&](int k) {
    const PipelineStep step = turn(k);
    if (stage > 0 || step.chunk > 0) add(PipelineAction::kReceiveActivation, step);
    add(PipelineAction::kForward, step);
    if (stage + 1 < stages || step.chunk + 1 < chunks) add(PipelineAction::kSendActivation, step);
  };
  const auto backward = [&](int k) {
    PipelineStep step = turn(k);
    step.chunk = chunks - 1 - step.chunk;
    if (stage + 1 < stages || step.chunk + 1 < chunks) add(PipelineAction::kReceiveGradient, step);
    add(PipelineAction::kBackward, step);
    if (stage > 0 || step.chunk > 0) add(PipelineAction::kSendGradient, step);
  };
  const int all = chunks * micro_batches;
  const int first = warm_up(stages, chunks, stage, micro_batches);
  for (int k = 0; k < first; ++k) forward(k);
  for (int k = first; k < all; ++k) {
    forward(k);
    backward(k - first);
  }
  for (int k = all - first; k < all; ++k) backward(k);
  return steps;
}

}  // namespace hdt::training
