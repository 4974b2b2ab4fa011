// pipeline_schedule.cc: the 1F1B generator.
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
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < warm_up; ++i) forward(i);
  for (int i = warm_up; i < micro_batches; ++i) {
    forward(i);
    backward(i - warm_up);
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) backward(i);
  return steps;
}

std::vector<PipelineStep> zero_bubble(int stages, int stage, int micro_batches) {
  std::vector<PipelineStep> steps;
  int put_off = 0;
  int next_weight = 0;
  const auto weight = [&] {
    steps.push_back({PipelineAction::kWeightGradient, next_weight++});
    --put_off;
  };
  for (const PipelineStep& step : one_forward_one_backward(stages, stage, micro_batches)) {
    // The weights' turn comes after the gradient has been sent, so before whatever follows.
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
