// run_summary.cc: sums, and their text.
#include "tools/hdt-train/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "training/data/progress_line.h"

namespace hdt::tools {

std::string place_text(int rank, const training::Layout& layout) {
  const training::Position position = layout.position_of(rank);
  return fmt::format("rank {} (replica {}, stage {})", rank, position.replica, position.stage);
}

void RunSummary::step_done(const training::StepResult& result, double seconds,
                           std::span<const double> peak_memory) {
  tokens_ += result.tokens;
  if (steps_++ > 0) {
    counted_tokens_ += result.tokens;
    counted_seconds_ += seconds;
  }
  times_.add(result.times);
  const auto most = std::ranges::max_element(peak_memory);
  if (most != peak_memory.end() && *most > peak_.bytes)
    peak_ = {*most, static_cast<int>(most - peak_memory.begin())};
}

std::optional<double> RunSummary::tokens_per_second() const {
  if (counted_seconds_ <= 0) return std::nullopt;
  return static_cast<double>(counted_tokens_) / counted_seconds_;
}

std::optional<double> RunSummary::seconds_per_step() const {
  if (counted_seconds_ <= 0) return std::nullopt;
  return counted_seconds_ / static_cast<double>(steps_ - 1);
}

std::string RunSummary::text(const training::Layout& layout, std::chrono::duration<double> elapsed,
                             std::chrono::duration<double> checkpoints) const {
  std::string text = fmt::format("summary: {} steps, {} tokens in {}", steps_,
                                 training::format_grouped(tokens_), training::format_duration(elapsed));
  if (const auto rate = tokens_per_second())
    text += fmt::format("; {} tokens/s after the first step", training::format_grouped(std::llround(*rate)));
  text += '\n';
  if (const auto shares = training::shares_of(times_.ranks()))
    text += fmt::format("time of all ranks: {}\n", training::to_text(*shares));
  if (const auto slowest = training::slowest_rank(times_.ranks()); slowest && slowest->is_clear())
    text += fmt::format("slowest: {} computes {:.1f} times as long as the others\n",
                        place_text(slowest->rank, layout), slowest->factor);
  if (peak_.bytes > 0)
    text += fmt::format("peak memory: {:.1f} MiB, on {}\n", peak_.bytes / (1 << 20),
                        place_text(peak_.rank, layout));
  if (checkpoints.count() > 0)
    text += fmt::format("checkpoints: training waited {:.2f} s for them, {:.1f} % of its time\n",
                        checkpoints.count(), 100 * checkpoints / elapsed);
  return text;
}

}  // namespace hdt::tools
