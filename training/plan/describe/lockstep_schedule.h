// lockstep_schedule.h: the 1F1B order of DeepSpeed's pipeline engine, as steps like those of the
// training engine.
//
// All stages move in half steps. In a half step even stages do a forward while odd stages do a backward;
// in the next half step they change roles. Before a half step a stage exchanges messages with one
// neighbour, the gradient first. Therefore an activation leaves only after the stage has received the
// gradient of an earlier micro-batch (deepspeed/runtime/pipe/schedule.py, TrainSchedule). HDT's engine
// does not run this order. The predictor needs it to be compared with published runs of DeepSpeed.
#pragma once

#include <vector>

#include "training/engine/pipeline_schedule.h"

namespace hdt::plan {

// The steps of stage `stage` (0 is the first) of a pipeline of `stages` stages, in order.
std::vector<training::PipelineStep> lockstep_one_forward_one_backward(int stages, int stage,
                                                                      int micro_batches);

// The maximum number of micro-batches that are between their forward and the end of their backward,
// whose activations are kept. Works for the steps of any schedule.
int most_in_flight(const std::vector<training::PipelineStep>& steps);

}  // namespace hdt::plan
