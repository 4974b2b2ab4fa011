// schedules.h: the pipeline schedules that a plan may name, and how much each keeps in flight.
#pragma once

#include <vector>

#include "training/engine/pipeline_schedule.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

std::vector<training::PipelineStep> steps_of(ScheduleKind schedule, int stages, int stage, int micro_batches);

// How many micro-batches are at most between their forward and the end of their backward.
int most_in_flight(ScheduleKind schedule, int stages, int stage, int micro_batches);

// Whether a backward may be in two: then the gradient goes on before that of the weights is there.
inline bool splits_backward(ScheduleKind schedule) { return schedule == ScheduleKind::kZeroBubble; }

}  // namespace hdt::plan
