// pipeline_schedule.cc: the generators of 1F1B and of zero bubble.
#include "training/engine/pipeline_schedule.h"

#include <algorithm>

namespace hdt::training {

int most_in_flight(int stages, int stage, int micro_batches) {
  return std::min(stages - stage, micro_batches);
}

std::vector<PipelineStep> one_forward_one_backward(int stages, int stage, int micro_batches) {
  const bool first = stage == 0;
  const bool last = stage == stages - 1;
  std::vector<PipelineStep> steps;
  // A micro-batch's steps in each direction; the ends of the pipeline have one neighbour only.
  const auto forward = [&](int micro_batch) {
    if (!first) steps.push_back({PipelineAction::kReceiveActivation, micro_batch});
    steps.push_back({PipelineAction::kForward, micro_batch});
    if (!last) steps.push_back({PipelineAction::kSendActivation, micro_batch});
  };
  const auto backward = [&](int micro_batch) {
    if (!last) steps.push_back({PipelineAction::kReceiveGradient, micro_batch});
    steps.push_back({PipelineAction::kBackward, micro_batch});
    if (!first) steps.push_back({PipelineAction::kSendGradient, micro_batch});
  };
  // Warm-up, steady state, drain.
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < warm_up; ++i) forward(i);
  for (int i = warm_up; i < micro_batches; ++i) {
    forward(i);
    backward(i - warm_up);
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) backward(i);
  return steps;
}

// Goes through 1F1B's list, replaces each backward by its first half, and inserts the second halves: as
// soon as more than `stage` of them wait, and all that are left at the end.
std::vector<PipelineStep> zero_bubble(int stages, int stage, int micro_batches) {
  std::vector<PipelineStep> steps;
  int put_off = 0;
  int next_weight = 0;
  const auto weight = [&] {
    steps.push_back({PipelineAction::kWeightGradient, next_weight++});
    --put_off;
  };
  // `put_off` counts the second halves that wait; they are taken in the order of micro-batches.
  for (const PipelineStep& step : one_forward_one_backward(stages, stage, micro_batches)) {
    // The gradient is sent first, because the stage before waits for it; the weights' turn is before
    // whatever follows.
    if (step.action != PipelineAction::kSendGradient && put_off > stage) weight();
    if (step.action != PipelineAction::kBackward) {
      steps.push_back(step);
      continue;
    }
    steps.push_back({PipelineAction::kInputGradient, step.micro_batch});
    ++put_off;
  }
  while (put_off > 0) weight();
  return steps;
}

}  // namespace hdt::training
