// reporter.h: what a run shows its user: progress, TensorBoard events, a log of losses, the curve of the
// loss.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/run_summary.h"
#include "training/data/data_split.h"
#include "training/data/event_writer.h"
#include "training/data/loss_curve.h"
#include "training/data/progress_line.h"
#include "training/engine/evaluation.h"
#include "training/engine/layout.h"
#include "training/engine/step_times.h"
#include "training/engine/trainer.h"

namespace hdt::tools {

// Exists on rank 0 only, and is used by its main thread. Flags and layout must outlive it. Errors name the
// flag of the output that failed.
class Reporter {
 public:
  // Opens the outputs that the flags name. The loss curve is written at the end; whether it can be is
  // tried now.
  // A run that goes on from a checkpoint adds to the loss log; a step that is repeated has two lines then.
  static Result<std::unique_ptr<Reporter>> open(const TrainFlags& flags, const training::Layout& layout,
                                                bool goes_on);

  // Call it after each step. `done` counts the complete steps from 1; `seconds` is the length of the
  // step on this rank. `peak_memory`: the most memory that each rank has had, in bytes; 0: not known.
  Status step_done(int64_t done, const training::StepResult& result, double seconds,
                   std::span<const double> peak_memory);
  // Call it after an evaluation: the loss of `part` after `done` steps. The perplexity is exp(loss).
  Status evaluated(training::DataPart part, int64_t done, const training::EvaluationResult& result);
  // Ends the progress line, writes out what is buffered, and draws the curve if any step was complete.
  // The picture shows `subtitle`, and `unigram_entropy` as a line.
  Status finish(const std::string& subtitle, double unigram_entropy);

  // With --elastic. The points of the curve of before, of which those after step `done` are not true any
  // more; and how many ranks the run has begun with, which the progress line shows beside those that are
  // left.
  void go_on(std::vector<training::LossPoint> points, int64_t done, int first_world_size);
  // Ends the progress line; returns the points of the curve. There are no more steps then.
  std::vector<training::LossPoint> break_off();

  // Sums over the steps that were reported.
  const RunSummary& summary() const { return summary_; }

 private:
  Reporter(const TrainFlags& flags, const training::Layout& layout);
  // Adds the figures of a step to TensorBoard's events, if they are wanted.
  Status add_events(int64_t done, const training::StepResult& result, double seconds);
  // Adds a line to the loss log, if there is one.
  Status log(const nlohmann::ordered_json& line);

  const TrainFlags& flags_;
  const training::Layout& layout_;
  RunSummary summary_;
  std::string ranks_left_;  // for the progress line; "" if all are
  // Over as much time as the rate of the progress line.
  training::TimesOfRanks recent_{std::chrono::seconds(10)};
  // The outputs; what was not asked for is null or closed.
  training::ProgressLine progress_;
  std::unique_ptr<training::EventWriter> events_;
  std::ofstream log_;
  training::LossCurve curve_;
};

}  // namespace hdt::tools
