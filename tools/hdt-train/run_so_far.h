// run_so_far.h: what a process keeps of a run that goes on with another layout after a loss (--elastic).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/checkpoint/census.h"
#include "training/data/loss_curve.h"
#include "training/engine/step_times.h"

namespace hdt::tools {

// Each process has its own. Used by the training thread.
struct RunSoFar {
  std::chrono::steady_clock::time_point began;  // the first step
  std::optional<int64_t> first_step;            // steps that were complete then
  int first_world_size = 0;
  int losses = 0;              // how often the run has gone on without ranks
  int64_t repeated_steps = 0;  // that were done again, as the last checkpoint did not have them
  // Of the present layout.
  int64_t done = 0;                               // complete steps of the run
  int64_t measured_steps = 0;                     // those of them that `times` has
  training::TimesOfRanks times;                   // the same on all ranks, or one step behind
  std::chrono::duration<double> longest_step{0};  // of all layouts
  // On a rank that has reported: the curve of the loss.
  std::vector<training::LossPoint> points;
  // With --elastic, from before the first step on.
  std::unique_ptr<training::Census> census;

  // Before the first step of a layout, after `complete` steps.
  void begin(int64_t complete, int world_size) {
    if (!first_step) {
      began = std::chrono::steady_clock::now();
      first_step = complete;
      first_world_size = world_size;
    }
    repeated_steps += std::max<int64_t>(0, done - complete);
    done = complete;
  }
  // The present layout is another one now; it may be lost before its first step.
  void goes_on_without_ranks() {
    ++losses;
    times = training::TimesOfRanks();
    measured_steps = 0;
  }
  void step_done(int64_t complete, std::span<const training::StepTimes> ranks,
                 std::chrono::duration<double> taken) {
    done = complete;
    times.add(ranks);
    ++measured_steps;
    longest_step = std::max(longest_step, taken);
  }
  std::chrono::duration<double> elapsed() const { return std::chrono::steady_clock::now() - began; }
  // A line for the end of the run.
  std::string text() const;
};

}  // namespace hdt::tools
