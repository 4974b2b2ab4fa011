// lockstep_schedule.h: the 1F1B order of DeepSpeed's pipeline engine, as steps like those of the training
// engine.
//
// All stages move in half steps that are forward on even and backward on odd stages, then the other way
// round. Before a half step a stage exchanges with one neighbour, gradient first: so an activation leaves
// only after the stage has received the gradient of an earlier micro-batch
// (deepspeed/runtime/pipe/schedule.py, TrainSchedule).
#pragma once

#include <vector>

#include "training/engine/pipeline_schedule.h"

namespace hdt::plan {

std::vector<training::PipelineStep> lockstep_one_forward_one_backward(int stages, int stage,
                                                                      int micro_batches);

// How many micro-batches are between their forward and their backward at most.
int most_in_flight(const std::vector<training::PipelineStep>& steps);

}  // namespace hdt::plan
