// schedules.h: the steps of the pipeline schedules that a plan may name, and how many micro-batches each
// keeps in flight.
#pragma once

#include <vector>

#include "training/engine/pipeline_schedule.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// The steps of stage `stage` (from 0) of `stages`, in order.
std::vector<training::PipelineStep> steps_of(ScheduleKind schedule, int stages, int stage, int micro_batches);

// The maximum number of micro-batches that are between their forward and the end of their backward on
// this stage. Their activations are in memory. Computed by formula; it costs no time for any number of
// micro-batches.
int most_in_flight(ScheduleKind schedule, int stages, int stage, int micro_batches);

// Whether a backward may be in two parts. Then the gradient goes on to the stage before while that of
// the weights is still to be computed.
inline bool splits_backward(ScheduleKind schedule) { return schedule == ScheduleKind::kZeroBubble; }

}  // namespace hdt::plan
