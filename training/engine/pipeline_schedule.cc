// pipeline_schedule.cc: the generators of GPipe, 1F1B, eager 1F1B and zero bubble.
#include "training/engine/pipeline_schedule.h"

#include <algorithm>
#include <utility>

namespace hdt::training {
namespace {

// Appends the steps of one micro-batch in one direction. The ends of the pipeline have one neighbour only.
class StepWriter {
 public:
  StepWriter(int stages, int stage) : first_(stage == 0), last_(stage == stages - 1) {}

  void forward(int micro_batch) {
    if (!first_) steps_.push_back({PipelineAction::kReceiveActivation, micro_batch});
    steps_.push_back({PipelineAction::kForward, micro_batch});
    if (!last_) steps_.push_back({PipelineAction::kSendActivation, micro_batch});
  }
  void backward(int micro_batch) {
    if (!last_) steps_.push_back({PipelineAction::kReceiveGradient, micro_batch});
    steps_.push_back({PipelineAction::kBackward, micro_batch});
    if (!first_) steps_.push_back({PipelineAction::kSendGradient, micro_batch});
  }
  std::vector<PipelineStep> take() { return std::move(steps_); }

 private:
  bool first_;
  bool last_;
  std::vector<PipelineStep> steps_;
};

// Warm-up, steady state, drain. There is room for one micro-batch more than the warm-up has.
std::vector<PipelineStep> alternating(int stages, int stage, int micro_batches, int in_flight) {
  StepWriter steps(stages, stage);
  const int warm_up = std::min(in_flight - 1, micro_batches);
  for (int i = 0; i < warm_up; ++i) steps.forward(i);
  for (int i = warm_up; i < micro_batches; ++i) {
    steps.forward(i);
    steps.backward(i - warm_up);
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) steps.backward(i);
  return steps.take();
}

int eager_in_flight(int stages, int stage) { return 3 * (stages - stage) - 2; }

}  // namespace

int most_in_flight(int stages, int stage, int micro_batches) {
  return std::min(stages - stage, micro_batches);
}

int most_in_flight_eager(int stages, int stage, int micro_batches) {
  return std::min(eager_in_flight(stages, stage), micro_batches);
}

std::vector<PipelineStep> gpipe(int stages, int stage, int micro_batches) {
  StepWriter steps(stages, stage);
  for (int i = 0; i < micro_batches; ++i) steps.forward(i);
  for (int i = 0; i < micro_batches; ++i) steps.backward(i);
  return steps.take();
}

std::vector<PipelineStep> one_forward_one_backward(int stages, int stage, int micro_batches) {
  return alternating(stages, stage, micro_batches, stages - stage);
}

std::vector<PipelineStep> eager_one_forward_one_backward(int stages, int stage, int micro_batches) {
  return alternating(stages, stage, micro_batches, eager_in_flight(stages, stage));
}

// Goes through 1F1B's list, replaces each backward by its first half, and inserts the second halves: as
// soon as more than `stage` of them wait, and all that are left at the end.
std::vector<PipelineStep> zero_bubble(int stages, int stage, int micro_batches) {
  std::vector<PipelineStep> steps;
  int put_off = 0;
  int next_weight = 0;
  const auto weight = [&] {
    steps.push_back({PipelineAction::kWeightGradient, next_weight++});
    --put_off;
  };
  // `put_off` counts the second halves that wait; they are taken in the order of micro-batches.
  for (const PipelineStep& step : one_forward_one_backward(stages, stage, micro_batches)) {
    // The gradient is sent first, because the stage before waits for it; the weights' turn is before
    // whatever follows.
    if (step.action != PipelineAction::kSendGradient && put_off > stage) weight();
    if (step.action != PipelineAction::kBackward) {
      steps.push_back(step);
      continue;
    }
    steps.push_back({PipelineAction::kInputGradient, step.micro_batch});
    ++put_off;
  }
  while (put_off > 0) weight();
  return steps;
}

}  // namespace hdt::training
