// schedules.h: the pipeline schedules by name: hdt-train --schedule, a plan's `schedule`, and what the
// predictor times and the runner executes.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "training/engine/pipeline_schedule.h"

namespace hdt::training {

// The order in which a stage does its forwards and backwards.
// - kGpipe: all forwards, then all backwards (pipeline_schedule.h).
// - kOneForwardOneBackward: 1F1B (pipeline_schedule.h).
// - kEager: 1F1B with a longer warm-up, which hides messages (pipeline_schedule.h).
// - kLockstep: 1F1B in the order of DeepSpeed's pipeline engine (lockstep_schedule.h).
// - kZeroBubble: ZB-H1 (pipeline_schedule.h). Backwards are in two parts.
// - kInterleaved: interleaved 1F1B (pipeline_schedule.h) where a stage has several chunks, 1F1B where it has
//   one. The other kinds are for one chunk.
enum class ScheduleKind { kGpipe, kOneForwardOneBackward, kEager, kLockstep, kZeroBubble, kInterleaved };

// All kinds. Each of them is for one chunk, and kInterleaved also for several.
inline constexpr ScheduleKind kScheduleKinds[] = {
    ScheduleKind::kGpipe,      ScheduleKind::kOneForwardOneBackward,
    ScheduleKind::kEager,      ScheduleKind::kLockstep,
    ScheduleKind::kZeroBubble, ScheduleKind::kInterleaved};

// "gpipe", "1f1b", "eager-1f1b", "1f1b-lockstep", "zero-bubble" or "interleaved".
const char* schedule_name(ScheduleKind kind);
// The names of kScheduleKinds, for texts: "gpipe, 1f1b, eager-1f1b, 1f1b-lockstep, zero-bubble or
// interleaved".
const char* schedule_names();
// The kind of kScheduleKinds of that name. kInvalidArgument lists the names.
Result<ScheduleKind> schedule_of(std::string_view name);

// The steps of stage `stage` (from 0) of `stages`, in order. `chunks`: 1 but with kInterleaved.
std::vector<PipelineStep> steps_of(ScheduleKind schedule, int stages, int stage, int micro_batches,
                                   int chunks = 1);
// kInvalidArgument, with what would do, unless the engine can run the schedule with so many chunks: several
// need kInterleaved, two stages, and a number of micro-batches that is a multiple of the stages.
Status check_chunks(ScheduleKind schedule, int stages, int micro_batches, int chunks);

// The maximum number of micro-batches that are between their forward and the end of their backward on
// this stage, where it has one chunk. Their activations are in memory. Computed by formula; it costs no time
// for any number of micro-batches.
int most_in_flight(ScheduleKind schedule, int stages, int stage, int micro_batches);
// The same for the steps of any schedule, by counting.
int most_in_flight(const std::vector<PipelineStep>& steps);

// Whether a backward may be in two parts. Then the gradient goes on to the stage before while that of
// the weights is still to be computed.
inline bool splits_backward(ScheduleKind schedule) { return schedule == ScheduleKind::kZeroBubble; }

}  // namespace hdt::training
