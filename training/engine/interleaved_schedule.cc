// interleaved_schedule.cc: 1F1B over several ranges of layers (model chunks) on each stage. Follows
// Megatron-LM's order.
#include <algorithm>

#include "training/engine/pipeline_schedule.h"

namespace hdt::training {
namespace {

// The number of forwards before forwards and backwards alternate, as in Megatron-LM: (chunks - 1) *
// stages of them bring the first micro-batches as far as the last chunk, and each stage behind this one
// counts twice (in plain 1F1B once).
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
  // The chunk and the micro-batch of the k-th forward: as many micro-batches as there are stages go
  // through one chunk, then through the next.
  const auto turn = [&](int k) {
    const int group = k / (stages * chunks);
    return PipelineStep{PipelineAction::kForward, group * stages + k % stages, k / stages % chunks};
  };
  // Messages are left out at the ends of the whole pipeline: the first stage's first chunk and the last
  // stage's last one.
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
  // Backwards go through the chunks in the opposite order.
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
