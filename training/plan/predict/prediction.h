// prediction.h: what the predictor says about a plan.
#pragma once

#include <string>
#include <vector>

namespace hdt::plan {

enum class SpanKind {
  kForward,
  kBackward,
  kActivation,
  kGradient,
  kReduction,
  kUpdate,
  kInputGradient,
  kWeightGradient
};

const char* span_name(SpanKind kind);

// One thing a worker did. Messages belong to their sender, reductions to each owner.
struct Span {
  int worker = 0;
  SpanKind kind = SpanKind::kForward;
  int index = 0;  // micro-batch; of a reduction its number, of an update 0
  double start = 0;
  double end = 0;
};

// Where a worker's time of a step goes; the parts sum to the step.
struct WorkerTime {
  double compute = 0;
  double exposed_pipeline = 0;   // waiting for a message that is on its way
  double exposed_reduction = 0;  // waiting for a reduction that is running
  double bubble = 0;             // waiting for others: for their messages, gradients, or the end of the step
  double optimizer = 0;

  double sum() const { return compute + exposed_pipeline + exposed_reduction + bubble + optimizer; }
};

// A worker is one stage of one replica, numbered as in Plan::layout.
struct Prediction {
  double step_seconds = 0;
  std::vector<WorkerTime> workers;
  std::vector<double> peak_memory_bytes;  // by worker: of each of its devices
  std::vector<Span> spans;

  double most_memory_bytes() const;
};

}  // namespace hdt::plan
