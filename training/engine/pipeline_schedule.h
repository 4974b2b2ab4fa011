// pipeline_schedule.h: what a pipeline stage does in one training step, as data: run it, check it, time it.
//
// One forward, one backward (1F1B): a stage first runs as many forwards as there are stages behind it, then
// takes turns, then drains. At most `stages - stage` micro-batches hold their activations at a time, however
// many there are (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", the
// flushed variant).
#pragma once

#include <vector>

#include "base/status.h"

namespace hdt::training {

enum class PipelineAction {
  kReceiveActivation,  // from the stage before
  kForward,
  kSendActivation,   // to the stage after
  kReceiveGradient,  // from the stage after
  kBackward,
  kSendGradient,  // to the stage before
};

struct PipelineStep {
  PipelineAction action = PipelineAction::kForward;
  int micro_batch = 0;
  bool operator==(const PipelineStep&) const = default;
};

// The steps of `stage` of `stages`, in order.
std::vector<PipelineStep> one_forward_one_backward(int stages, int stage, int micro_batches);

// How many micro-batches can be between their forward and the end of their backward on this stage.
int most_in_flight(int stages, int stage, int micro_batches);

// Plays the schedules of all stages against each other. Fails (kInternal, naming stage, step and micro-batch)
// unless every stage runs each micro-batch forward once, then backward once; receives what it needs before it
// computes and sends what it has computed; messages of a pair match in order; at most `in_flight[stage]`
// micro-batches are in flight; and no stage waits for ever. Sends are taken to complete on their own.
Status check_pipeline(const std::vector<std::vector<PipelineStep>>& schedules, int micro_batches,
                      const std::vector<int>& in_flight);

}  // namespace hdt::training
