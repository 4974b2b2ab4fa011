// run_summary.h: what a run has done, in a few lines for its user.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "training/engine/layout.h"
#include "training/engine/step_times.h"
#include "training/engine/trainer.h"

namespace hdt::tools {

// "rank 3 (replica 1, stage 0)"
std::string place_text(int rank, const training::Layout& layout);

// The most memory that a rank has had, in bytes; 0: not known.
struct PeakMemory {
  double bytes = 0;
  int rank = 0;
};

// The sums of a run's steps, on rank 0. Not thread-safe.
class RunSummary {
 public:
  // `seconds`: the length of the step on this rank; `peak_memory`: of each rank until now, in bytes.
  void step_done(const training::StepResult& result, double seconds, std::span<const double> peak_memory);

  int64_t steps() const { return steps_; }
  // The first step maps memory and opens connections, so it does not count: there is a rate from the second
  // on.
  std::optional<double> tokens_per_second() const;
  std::optional<double> seconds_per_step() const;
  PeakMemory peak_memory() const { return peak_; }
  const training::TimesOfRanks& times() const { return times_; }

  // Lines with an end each: tokens and their rate, where the time went, memory, and how long training has
  // waited for checkpoints, unless that is nothing. `elapsed` is the time of the whole run.
  std::string text(const training::Layout& layout, std::chrono::duration<double> elapsed,
                   std::chrono::duration<double> checkpoints) const;

 private:
  int64_t steps_ = 0;
  int64_t tokens_ = 0;          // of all steps
  int64_t counted_tokens_ = 0;  // without the first one,
  double counted_seconds_ = 0;  // and their time
  PeakMemory peak_;
  training::TimesOfRanks times_;
};

}  // namespace hdt::tools
