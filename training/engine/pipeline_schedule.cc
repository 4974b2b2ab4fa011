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

}  // namespace hdt::training
