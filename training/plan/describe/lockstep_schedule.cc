// lockstep_schedule.cc: the lockstep generator.
#include "training/plan/describe/lockstep_schedule.h"

#include <algorithm>

namespace hdt::plan {

using training::PipelineAction;
using training::PipelineStep;

std::vector<PipelineStep> lockstep_one_forward_one_backward(int stages, int stage, int micro_batches) {
  const bool first = stage == 0;
  const bool last = stage == stages - 1;
  const auto exists = [&](int micro_batch) { return micro_batch >= 0 && micro_batch < micro_batches; };
  std::vector<PipelineStep> steps;
  int previous = -1;
  // The first forward of a stage is in half step `stage`, its first backward in 2 * stages - 1 - stage.
  for (int half_step = 0; half_step < 2 * (micro_batches + stages - 1); ++half_step) {
    const bool forward = half_step % 2 == stage % 2;
    const int since = half_step - (forward ? stage : 2 * stages - 1 - stage);
    const int current = since < 0 ? -1 : since / 2;
    if (forward) {
      if (exists(previous) && !first) steps.push_back({PipelineAction::kSendGradient, previous});
      if (exists(current) && !first) steps.push_back({PipelineAction::kReceiveActivation, current});
      if (exists(current)) steps.push_back({PipelineAction::kForward, current});
    } else {
      if (exists(current) && !last) steps.push_back({PipelineAction::kReceiveGradient, current});
      if (exists(previous) && !last) steps.push_back({PipelineAction::kSendActivation, previous});
      if (exists(current)) steps.push_back({PipelineAction::kBackward, current});
    }
    previous = current;
  }
  return steps;
}

int most_in_flight(const std::vector<PipelineStep>& steps) {
  int in_flight = 0;
  int most = 0;
  for (const PipelineStep& step : steps) {
    if (step.action == PipelineAction::kForward) most = std::max(most, ++in_flight);
    // Activations are kept for the weights' gradient too.
    if (step.action == PipelineAction::kBackward || step.action == PipelineAction::kWeightGradient)
      --in_flight;
  }
  return most;
}

}  // namespace hdt::plan
