// schedules.cc: calls the generator that belongs to a schedule's name. 1F1B and ZB-H1 are the engine's;
// the lockstep order is the planner's own.
#include "training/plan/describe/schedules.h"

#include <algorithm>

#include "training/plan/describe/lockstep_schedule.h"

namespace hdt::plan {

std::vector<training::PipelineStep> steps_of(ScheduleKind schedule, int stages, int stage,
                                             int micro_batches) {
  switch (schedule) {
    case ScheduleKind::kLockstep:
      return lockstep_one_forward_one_backward(stages, stage, micro_batches);
    case ScheduleKind::kZeroBubble:
      return training::zero_bubble(stages, stage, micro_batches);
    case ScheduleKind::kOneForwardOneBackward:
      break;
  }
  return training::one_forward_one_backward(stages, stage, micro_batches);
}

int most_in_flight(ScheduleKind schedule, int stages, int stage, int micro_batches) {
  switch (schedule) {
    case ScheduleKind::kZeroBubble:
      // Stage s of ZB-H1 has s micro-batches fewer before their backward than stage 0, and lets s of
      // them wait for the gradient of their weights. So all stages keep as many as stage 0 does.
      return std::min(stages, micro_batches);
    case ScheduleKind::kLockstep:
    case ScheduleKind::kOneForwardOneBackward:
      break;
  }
  return training::most_in_flight(stages, stage, micro_batches);
}

}  // namespace hdt::plan
