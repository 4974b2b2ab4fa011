// progress_line.cc: the text of the line, and when it is shown.
#include "training/data/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace hdt::training {
namespace {

// Fixed decimals as long as they say something; a loss that has run away needs its magnitude instead.
std::string format_value(double value, int decimals) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return std::abs(value) < 10000 ? fmt::format("{:.{}f}", value, decimals) : fmt::format("{:.2e}", value);
}

}  // namespace

// From the end, a comma after every three digits, but none after the sign.
std::string format_grouped(int64_t number) {
  std::string text = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string format_duration(std::chrono::duration<double> duration) {
  constexpr double kLongest = 1e9;  // seconds; 30 years
  const auto seconds = static_cast<int64_t>(std::lround(std::clamp(duration.count(), 0.0, kLongest)));
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m {:02}s", seconds / 60, seconds % 60);
  return fmt::format("{}h {:02}m", seconds / 3600, seconds % 3600 / 60);
}

// The line is one column shorter than the terminal, as some wrap when the last column is filled. Blanks cover
// what a longer line before has left.
void LineInPlace::show(std::string line) {
  if (columns_ > 1) line.resize(std::min(line.size(), columns_ - 1));
  const size_t characters = line.size();
  if (characters < shown_) line.append(shown_ - characters, ' ');
  shown_ = characters;
  out_ << '\r' << line << std::flush;
}

void LineInPlace::finish() {
  if (shown_ > 0) out_ << std::endl;
  shown_ = 0;
}

ProgressLine::ProgressLine(std::ostream& out, Options options)
    : out_(out), options_(std::move(options)), line_(out, options_.columns) {
  if (!options_.clock) options_.clock = std::chrono::steady_clock::now;
  start_ = last_ = options_.clock();
}

// The last step shows how long the run took instead of what is left. What matters most comes first, as a
// terminal may cut the rest.
std::string ProgressLine::text(const StepReport& report) const {
  std::string line =
      fmt::format("step {}/{} | loss {}", report.step, options_.total_steps, format_value(report.loss, 3));
  if (const auto rate = rate_.tokens_per_second()) {
    line += fmt::format(" | {} tokens/s", format_grouped(std::llround(*rate)));
  }
  if (report.step >= options_.total_steps) {
    line += " | took " + format_duration(last_ - start_);
  } else if (const auto rate = rate_.steps_per_second()) {
    const double left = static_cast<double>(options_.total_steps - report.step) / *rate;
    line += " | " + format_duration(std::chrono::duration<double>(left)) + " left";
  }
  if (!report.times.empty()) line += fmt::format(" | {}", report.times);
  line +=
      fmt::format(" | lr {:.1e} | grad norm {}", report.learning_rate, format_value(report.gradient_norm, 2));
  if (report.loss_scale > 0)
    line += fmt::format(" | loss scale {:g}, {} steps skipped", report.loss_scale, report.skipped_steps);
  return line;
}

void ProgressLine::step_done(const StepReport& report) {
  // The rate counts every step, also those that are not shown.
  const auto now = options_.clock();
  rate_.add(now - last_, report.tokens);
  last_ = now;
  const bool due = first_ || report.step >= options_.total_steps || report.step % options_.log_interval == 0;
  first_ = false;
  if (!options_.in_place) {
    if (due) out_ << text(report) << std::endl;
    return;
  }
  line_.show(text(report));
}

void ProgressLine::skip_time() { last_ = options_.clock(); }

void ProgressLine::finish() { line_.finish(); }

// A "dumb" terminal does not go back to the line's start.
bool is_terminal(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

size_t terminal_columns(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace hdt::training
