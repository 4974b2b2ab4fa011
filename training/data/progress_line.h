// progress_line.h: the line that a person watches while training:
//   step 120/600 | loss 2.314 | 8,420 tokens/s | lr 3.0e-04 | grad norm 0.80 | 1m 12s left
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

namespace hdt::training {

struct StepReport {
  int64_t step = 0;  // steps done, of `total_steps`
  double loss = 0;
  int64_t tokens = 0;  // of this step, over all replicas
  double learning_rate = 0;
  double gradient_norm = 0;
};

// "1,234,567", "59s", "1m 12s", "2h 03m".
std::string format_grouped(int64_t number);
std::string format_duration(std::chrono::duration<double> duration);

// Tokens and steps a second, averaged with a weight that halves every `half_life`. The first step (warm-up of
// allocators and links) counts only until others have been seen.
class RateEstimate {
 public:
  explicit RateEstimate(std::chrono::duration<double> half_life = std::chrono::seconds(10));
  void add(std::chrono::duration<double> elapsed, int64_t tokens);
  std::optional<double> tokens_per_second() const;
  std::optional<double> steps_per_second() const;

 private:
  double half_life_;
  double seconds_ = 0;
  double tokens_ = 0;
  double steps_ = 0;
  int64_t added_ = 0;
};

class ProgressLine {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  struct Options {
    int64_t total_steps = 0;
    int64_t log_interval = 10;  // lines between steps when not on a terminal
    bool in_place = false;      // stdout is a terminal: rewrite one line instead
    Clock clock;                // steady_clock when empty
  };

  // The time of the first step counts from here.
  ProgressLine(std::ostream& out, Options options);

  // After every step. In place: always shown. Otherwise: the first, the last and every log_interval-th step.
  void step_done(const StepReport& report);
  // Ends the line, so that other text can follow. Called again or without a line: does nothing.
  void finish();

  // Of the steps so far.
  std::optional<double> tokens_per_second() const { return rate_.tokens_per_second(); }

 private:
  std::string text(const StepReport& report) const;

  std::ostream& out_;
  Options options_;
  RateEstimate rate_;
  std::chrono::steady_clock::time_point last_;
  size_t width_ = 0;  // of the line shown in place
  bool first_ = true;
};

// Whether a file descriptor is a terminal that can rewrite a line.
bool is_terminal(int descriptor);

}  // namespace hdt::training
