// schedules.cc: calls the generator that belongs to a schedule's name.
#include "training/engine/schedules.h"

#include <fmt/format.h>

#include <algorithm>

#include "training/engine/lockstep_schedule.h"

namespace hdt::training {

const char* schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return "gpipe";
    case ScheduleKind::kOneForwardOneBackward:
      return "1f1b";
    case ScheduleKind::kEager:
      return "eager-1f1b";
    case ScheduleKind::kLockstep:
      return "1f1b-lockstep";
    case ScheduleKind::kZeroBubble:
      return "zero-bubble";
    case ScheduleKind::kInterleaved:
      return "interleaved";
  }
  return "";
}

const char* schedule_names() { return "gpipe, 1f1b, eager-1f1b, 1f1b-lockstep, zero-bubble or interleaved"; }

Result<ScheduleKind> schedule_of(std::string_view name) {
  const auto* const found = std::ranges::find(kScheduleKinds, name, schedule_name);
  if (found != std::end(kScheduleKinds)) return *found;
  return Status(Code::kInvalidArgument, fmt::format("'{}' given, expected {}", name, schedule_names()));
}

Status check_chunks(ScheduleKind schedule, int stages, int micro_batches, int chunks) {
  if (chunks == 1) return Status::ok();
  if (schedule != ScheduleKind::kInterleaved) {
    return {
        Code::kInvalidArgument,
        fmt::format("schedule {}: a stage has {} chunks of the model, expected 1; several need interleaved",
                    schedule_name(schedule), chunks)};
  }
  if (stages < 2) {
    return {Code::kInvalidArgument,
            fmt::format("schedule interleaved: {} chunks on one stage, expected at least 2 stages", chunks)};
  }
  if (micro_batches % stages != 0) {
    return {Code::kInvalidArgument,
            fmt::format("schedule interleaved: {} micro-batches (--num-micro-batches-per-dp, "
                        "--global-batch-size), expected a multiple of the {} stages: {} left over",
                        micro_batches, stages, micro_batches % stages)};
  }
  return Status::ok();
}

std::vector<PipelineStep> steps_of(ScheduleKind schedule, int stages, int stage, int micro_batches,
                                   int chunks) {
  switch (schedule) {
    case ScheduleKind::kGpipe:
      return gpipe(stages, stage, micro_batches);
    case ScheduleKind::kEager:
      return eager_one_forward_one_backward(stages, stage, micro_batches);
    case ScheduleKind::kLockstep:
      return lockstep_one_forward_one_backward(stages, stage, micro_batches);
    case ScheduleKind::kZeroBubble:
      return zero_bubble(stages, stage, micro_batches);
    case ScheduleKind::kInterleaved:
      if (chunks == 1) break;
      return interleaved_one_forward_one_backward(stages, chunks, stage, micro_batches);
    case ScheduleKind::kOneForwardOneBackward:
      break;
  }
  return one_forward_one_backward(stages, stage, micro_batches);
}

int most_in_flight(ScheduleKind schedule, int stages, int stage, int micro_batches) {
  switch (schedule) {
    case ScheduleKind::kGpipe:
      return micro_batches;
    case ScheduleKind::kEager:
      return most_in_flight_eager(stages, stage, micro_batches);
    case ScheduleKind::kZeroBubble:
      // Stage s of ZB-H1 has s micro-batches fewer before their backward than stage 0, and lets s of
      // them wait for the gradient of their weights. So all stages keep as many as stage 0 does.
      return std::min(stages, micro_batches);
    case ScheduleKind::kLockstep:
    case ScheduleKind::kOneForwardOneBackward:
    case ScheduleKind::kInterleaved:
      break;
  }
  return most_in_flight(stages, stage, micro_batches);
}

int most_in_flight(const std::vector<PipelineStep>& steps) {
  int in_flight = 0;
  int most = 0;
  for (const PipelineStep& step : steps) {
    if (step.action == PipelineAction::kForward) most = std::max(most, ++in_flight);
    // The gradient of the weights is computed from the activations too. Where the backward is in two
    // parts, memory is freed after the second part.
    if (step.action == PipelineAction::kBackward || step.action == PipelineAction::kWeightGradient)
      --in_flight;
  }
  return most;
}

}  // namespace hdt::training
