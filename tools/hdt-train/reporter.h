// reporter.h: what a run shows its user: progress, TensorBoard events, a log of losses, the curve of the
// loss.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/data/data_split.h"
#include "training/data/event_writer.h"
#include "training/data/loss_curve.h"
#include "training/data/progress_line.h"
#include "training/engine/evaluation.h"
#include "training/engine/layout.h"
#include "training/engine/trainer.h"

namespace hdt::tools {

// Exists on rank 0 only, and is used by its main thread. `flags` must outlive it. Errors name the flag
// of the output that failed.
class Reporter {
 public:
  // Opens the outputs that the flags name. The loss curve is written at the end; whether it can be is
  // tried now.
  // A run that goes on from a checkpoint adds to the loss log; a step that is repeated has two lines then.
  static Result<std::unique_ptr<Reporter>> open(const TrainFlags& flags, bool goes_on);

  // Call it after each step. `done` counts the complete steps from 1; `seconds` is the length of the
  // step on this rank.
  Status step_done(int64_t done, const training::StepResult& result, double seconds);
  // Call it after an evaluation: the loss of `part` after `done` steps. The perplexity is exp(loss).
  Status evaluated(training::DataPart part, int64_t done, const training::EvaluationResult& result);
  // Ends the progress line, writes out what is buffered, and draws the curve if any step was complete.
  // The picture shows `subtitle`, and `unigram_entropy` as a line.
  Status finish(const std::string& subtitle, double unigram_entropy);

 private:
  explicit Reporter(const TrainFlags& flags);
  // Adds a line to the loss log, if there is one.
  Status log(const nlohmann::ordered_json& line);

  const TrainFlags& flags_;
  // The outputs; what was not asked for is null or closed.
  training::ProgressLine progress_;
  std::unique_ptr<training::EventWriter> events_;
  std::ofstream log_;
  training::LossCurve curve_;
};

}  // namespace hdt::tools
