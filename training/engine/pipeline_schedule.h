// pipeline_schedule.h: what a pipeline stage does in one training step, as data. The engine runs it, the
// checker below proves it, and the predictor (training/plan) times it. schedules.h has the schedules by name.
//
// One forward, one backward (1F1B): a stage first runs as many forwards as there are stages behind it,
// then alternates, then drains. At most `stages - stage` micro-batches hold their activations at a time,
// however many there are (Narayanan et al. 2019: "PipeDream: Generalized pipeline parallelism for DNN
// training", the flushed variant).
#pragma once

#include <vector>

#include "base/status.h"

namespace hdt::training {

// The action of one step. Messages go to the neighbouring stages of the same replica.
enum class PipelineAction {
  kReceiveActivation,  // from the stage before
  kForward,
  kSendActivation,   // to the stage after
  kReceiveGradient,  // from the stage after
  kBackward,
  kSendGradient,  // to the stage before
  // A backward in two: what the stage before waits for, and what only the update does. The first may not
  // follow a kBackward of the same micro-batch, nor may it be left without the second.
  kInputGradient,
  kWeightGradient,
};

// One entry of a stage's list. The lists are executed in order.
struct PipelineStep {
  PipelineAction action = PipelineAction::kForward;
  int micro_batch = 0;
  int chunk = 0;  // model chunk: one of the stage's ranges of layers, if it has several
  bool operator==(const PipelineStep&) const = default;
};

// GPipe (Huang et al. 2019: "GPipe: Efficient training of giant neural networks using pipeline
// parallelism"): all forwards of `stage` of `stages`, then all backwards, both in the order of the
// micro-batches. The activations of all micro-batches are held.
std::vector<PipelineStep> gpipe(int stages, int stage, int micro_batches);

// The steps of `stage` of `stages` under 1F1B, in order.
std::vector<PipelineStep> one_forward_one_backward(int stages, int stage, int micro_batches);

// Eager 1F1B: 1F1B with a longer warm-up, which hides messages under computation (Zhuang et al. 2022: "On
// optimizing the communication of model parallelism"). Three forwards are run ahead for each stage behind
// this one: one for the work there, one for the way there, and one for the way back. So messages that take as
// long as a stage's forward and backward cost no time but at the beginning and the end of the step. (The
// paper runs two ahead, which hides messages of half that length.)
std::vector<PipelineStep> eager_one_forward_one_backward(int stages, int stage, int micro_batches);
// The maximum number of micro-batches that are then in flight: min(3 * (stages - stage) - 2, micro_batches).
int most_in_flight_eager(int stages, int stage, int micro_batches);

// Zero bubble with the memory of 1F1B (ZB-H1 of Qi, Wan, Huang, Lin 2023: "Zero bubble pipeline
// parallelism"): 1F1B whose backwards are in two. A stage sends the gradient on before it computes that
// of its weights, and puts the latter off to when it would otherwise wait. Stage s lets s of them wait,
// as it has s micro-batches fewer in flight than stage 0, and computes the last of them when it would
// otherwise be idle.
std::vector<PipelineStep> zero_bubble(int stages, int stage, int micro_batches);

// Interleaved 1F1B (Narayanan et al. 2021: "Efficient large-scale language model training on GPU
// clusters using Megatron-LM", section 2.2): each stage has `chunks` ranges of layers (model chunks).
// The last stage sends the activations of one chunk to the first stage, whose next chunk goes on with
// them. The bubble is as many times shorter as there are chunks. There must be at least two stages, and
// the micro-batches must be a multiple of them; with other numbers the schedule could hang.
std::vector<PipelineStep> interleaved_one_forward_one_backward(int stages, int chunks, int stage,
                                                               int micro_batches);
// The maximum number of (micro-batch, model chunk) pairs that are then between their forward and the end
// of their backward.
int most_in_flight_interleaved(int stages, int chunks, int stage, int micro_batches);

// The maximum number of micro-batches that are between their forward and the end of their backward on
// this stage, under 1F1B and zero_bubble().
int most_in_flight(int stages, int stage, int micro_batches);

// Plays the schedules of all stages against each other. kInternal, with stage, step and micro-batch, unless:
// - every stage runs each micro-batch forward once in each of its chunks, then backward once (in one or
//   in two);
// - it receives what it needs before it computes, and sends only what it has computed;
// - messages of a pair match in order, and none is left over;
// - at most `in_flight[stage]` micro-batches (of all chunks) are in flight;
// - no stage waits for ever.
//
// Sends are taken to complete on their own.
Status check_pipeline(const std::vector<std::vector<PipelineStep>>& schedules, int micro_batches,
                      const std::vector<int>& in_flight, int chunks = 1);

}  // namespace hdt::training
