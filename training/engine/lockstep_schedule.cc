// lockstep_schedule.cc: generates the lockstep order for one stage.
#include "training/engine/lockstep_schedule.h"

namespace hdt::training {

std::vector<PipelineStep> lockstep_one_forward_one_backward(int stages, int stage, int micro_batches) {
  const bool first = stage == 0;
  const bool last = stage == stages - 1;
  const auto exists = [&](int micro_batch) { return micro_batch >= 0 && micro_batch < micro_batches; };
  std::vector<PipelineStep> steps;
  int previous = -1;
  // The first forward of a stage is in half step `stage`, its first backward in 2 * stages - 1 - stage.
  // `current` is the micro-batch that this half step computes, and `previous` that of the half step
  // before. Either may be out of range while the pipeline fills and drains; the stage then does nothing
  // for it.
  for (int half_step = 0; half_step < 2 * (micro_batches + stages - 1); ++half_step) {
    const bool forward = half_step % 2 == stage % 2;
    const int since = half_step - (forward ? stage : 2 * stages - 1 - stage);
    const int current = since < 0 ? -1 : since / 2;
    // The two messages of a half step go to or come from the same neighbour: the previous stage before a
    // forward, the next stage before a backward. That neighbour does the matching half of the exchange
    // in the same half step.
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

}  // namespace hdt::training
