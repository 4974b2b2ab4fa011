// lockstep_schedule.h: the 1F1B order of DeepSpeed's pipeline engine, as steps.
//
// All stages move in half steps. In a half step even stages do a forward while odd stages do a backward;
// in the next half step they change roles. Before a half step a stage exchanges messages with one
// neighbour, the gradient first. Therefore an activation leaves only after the stage has received the
// gradient of an earlier micro-batch (deepspeed/runtime/pipe/schedule.py, TrainSchedule). The predictor
// needs this order to be compared with published runs of DeepSpeed. It is never faster than 1F1B.
#pragma once

#include <vector>

#include "training/engine/pipeline_schedule.h"

namespace hdt::training {

// The steps of stage `stage` (0 is the first) of a pipeline of `stages` stages, in order.
std::vector<PipelineStep> lockstep_one_forward_one_backward(int stages, int stage, int micro_batches);

}  // namespace hdt::training
