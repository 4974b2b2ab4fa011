// reporter.h: what a run tells its user: progress, TensorBoard events, a log of losses, the curve. On one
// rank.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/data/event_writer.h"
#include "training/data/loss_curve.h"
#include "training/data/progress_line.h"
#include "training/engine/layout.h"
#include "training/engine/trainer.h"

namespace hdt::tools {

class Reporter {
 public:
  // Opens what the flags name, and tries that the loss curve, which is written at the end, can be.
  static Result<std::unique_ptr<Reporter>> open(const TrainFlags& flags);

  // After each step; `done` counts from 1; `seconds` are those of the step on this rank.
  Status step_done(int64_t done, const training::StepResult& result, double seconds);
  // Ends the progress line, writes out what is buffered, draws the curve of the steps that were done, if any.
  // `unigram_entropy` is drawn beside it.
  Status finish(const std::string& subtitle, double unigram_entropy);

 private:
  explicit Reporter(const TrainFlags& flags);

  const TrainFlags& flags_;
  training::ProgressLine progress_;
  std::unique_ptr<training::EventWriter> events_;
  std::ofstream log_;
  training::LossCurve curve_;
};

}  // namespace hdt::tools
