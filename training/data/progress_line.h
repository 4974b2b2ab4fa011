// progress_line.h: the line that a person watches while training:
//   step 120/600 | loss 2.314 | 8,420 tokens/s | 1m 12s left
//       | compute 71 % pp 9 % dp 12 % optimizer 3 % other 5 % | slowest rank 3 (replica 1, stage 0): 1.8 x
//       | lr 3.0e-04 | grad norm 0.80 | loss scale 65536, 2 steps skipped
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "training/data/rate_estimate.h"

namespace hdt::training {

// The figures of one step.
struct StepReport {
  int64_t step = 0;  // steps done, out of `total_steps`
  double loss = 0;
  int64_t tokens = 0;  // of this step, over all replicas
  double learning_rate = 0;
  double gradient_norm = 0;
  std::string_view times = "";  // where the time goes, in words; empty: not shown
  double loss_scale = 0;        // 0: there is none, and it is not shown
  int64_t skipped_steps = 0;    // so far; shown with the scale
};

// A number with its thousands separated: "1,234,567".
std::string format_grouped(int64_t number);
// A duration, rounded to seconds or minutes: "59s", "1m 12s", "2h 03m".
std::string format_duration(std::chrono::duration<double> duration);

// One line that is written over on a terminal. Not thread-safe. The owner shows texts without line ends, and
// calls finish() before anything else is printed there.
class LineInPlace {
 public:
  // `out` must outlive the object. `columns` is the width of the terminal; a longer line would wrap, so it is
  // cut. 0: not known.
  LineInPlace(std::ostream& out, size_t columns) : out_(out), columns_(columns) {}
  void show(std::string line);
  // Ends the line that was shown, if there is one, so that other text can follow.
  void finish();

 private:
  std::ostream& out_;
  size_t columns_;
  size_t shown_ = 0;  // characters of the line; 0: there is none
};

// One run's progress, on rank 0. Not thread-safe.
class ProgressLine {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  struct Options {
    int64_t total_steps = 0;
    int64_t log_interval = 10;  // steps from line to line when not in place
    bool in_place = false;      // for a terminal: one line that is written over
    // Width of the terminal; a longer line would wrap, so it is cut. 0: not known.
    size_t columns = 0;
    Clock clock;  // steady_clock if empty
  };

  // The time of the first step counts from here. `out` must outlive the object.
  ProgressLine(std::ostream& out, Options options);

  // To be called after every step. In place the line is always shown. Otherwise it is shown for the
  // first step seen, for the last one of all, and for each log_interval-th.
  void step_done(const StepReport& report);
  // The time since the last step was spent on something else: it counts for no rate.
  void skip_time();
  // Ends a line that was shown in place, so that other text can follow.
  void finish();

  // Over the recent steps; nothing before the first.
  std::optional<double> tokens_per_second() const { return rate_.tokens_per_second(); }

 private:
  // The line for a report.
  std::string text(const StepReport& report) const;

  std::ostream& out_;
  Options options_;
  RateEstimate rate_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  LineInPlace line_;
  bool first_ = true;
};

// Whether a line can be written over on this file descriptor: it is a terminal, and TERM is not "dumb".
bool is_terminal(int descriptor);
// The width of the terminal; 0 if there is none.
size_t terminal_columns(int descriptor);

}  // namespace hdt::training
