// prediction.h: the result of a prediction. Times are seconds from the begin of the step.
#pragma once

#include <string>
#include <vector>

namespace hdt::plan {

// The activity of a worker in a span. kBackward is a backward in one part, kInputGradient and kWeightGradient
// are its two parts. kGather is the allgather of parameters that other owners have updated.
enum class SpanKind {
  kForward,
  kBackward,
  kActivation,
  kGradient,
  kReduction,
  kUpdate,
  kInputGradient,
  kWeightGradient,
  kGather
};

// A name for pictures and traces.
const char* span_name(SpanKind kind);

// One thing that a worker did. A message belongs to its sender; a reduction and a gather have a span for each
// owner. A forward that waits for parameters in between has several.
struct Span {
  int worker = 0;
  SpanKind kind = SpanKind::kForward;
  // The micro-batch; for a reduction or a gather its number among the plan's reductions, for an update 0.
  int index = 0;
  double start = 0;
  double end = 0;
  // The chunk of the worker that computes or sends.
  int chunk = 0;
};

// Where the time of a worker goes in a step. The parts sum to the step.
struct WorkerTime {
  double compute = 0;
  // Waiting for a message that is on its way.
  double exposed_pipeline = 0;
  // Waiting for a reduction that is running, or for parameters that are being gathered.
  double exposed_reduction = 0;
  // Waiting for other workers: until they send, until their gradients are complete, or until the end of
  // the step.
  double bubble = 0;
  double optimizer = 0;

  // Equals the step, but for rounding.
  double sum() const { return compute + exposed_pipeline + exposed_reduction + bubble + optimizer; }
};

// A predicted step. A worker is one stage of one replica, numbered as in Plan::layout().
struct Prediction {
  double step_seconds = 0;
  std::vector<WorkerTime> workers;
  // By worker: what each of its devices needs.
  std::vector<double> peak_memory_bytes;
  // In no particular order. Only predict() fills them in for all workers.
  std::vector<Span> spans;

  // The maximum over the workers; there must be one.
  double most_memory_bytes() const;
};

}  // namespace hdt::plan
