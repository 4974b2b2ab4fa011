// reporter.cc: every output of a run is written here.
#include "tools/hdt-train/reporter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"

namespace hdt::tools {

namespace {

// The line is drawn in place only on a real terminal. mpirun gives its ranks a pseudo terminal without a
// size, whether or not its own output is a terminal.
training::ProgressLine::Options progress_options(const TrainFlags& flags) {
  training::ProgressLine::Options options;
  options.total_steps = flags.train_iters;
  options.log_interval = flags.log_interval;
  options.columns = training::terminal_columns(STDOUT_FILENO);
  options.in_place = training::is_terminal(STDOUT_FILENO) && options.columns > 0;
  return options;
}

std::array<std::pair<std::string_view, double>, 5> named(const training::TimeShares& shares) {
  return {{{"compute", shares.compute},
           {"pp", shares.pp},
           {"dp", shares.dp},
           {"optimizer", shares.optimizer},
           {"other", shares.other}}};
}

// The shares, and the slowest rank where it is clearly slower.
std::string times_text(std::span<const training::StepTimes> ranks, const training::Layout& layout) {
  const auto shares = training::shares_of(ranks);
  if (!shares) return "";
  std::string text = training::to_text(*shares);
  const auto slowest = training::slowest_rank(ranks);
  if (slowest && slowest->is_clear())
    text += fmt::format(" | slowest {}: {:.1f} x", place_text(slowest->rank, layout), slowest->factor);
  return text;
}

}  // namespace

Reporter::Reporter(const TrainFlags& flags, const training::Layout& layout)
    : flags_(flags), layout_(layout), progress_(std::cout, progress_options(flags)) {}

// Tries or opens the outputs in the order of their flags; nothing is written yet.
Result<std::unique_ptr<Reporter>> Reporter::open(const TrainFlags& flags, const training::Layout& layout,
                                                 bool goes_on) {
  std::unique_ptr<Reporter> reporter(new Reporter(flags, layout));
  if (!flags.loss_curve.empty()) {
    const Status writable = check_writable(flags.loss_curve);
    if (!writable.is_ok()) return Status(writable.code(), "--loss-curve: " + writable.message());
  }
  if (!flags.tensorboard_dir.empty()) {
    Result<std::unique_ptr<training::EventWriter>> events =
        training::EventWriter::open(flags.tensorboard_dir);
    if (!events.is_ok())
      return Status(events.status().code(), "--tensorboard-dir: " + events.status().message());
    reporter->events_ = events.take();
  }
  if (!flags.loss_log.empty()) {
    reporter->log_.open(flags.loss_log, goes_on ? std::ios::app : std::ios::trunc);
    if (!reporter->log_) return Status::from_errno("--loss-log: cannot open " + flags.loss_log, errno);
  }
  return reporter;
}

Status Reporter::step_done(int64_t done, const training::StepResult& result, double seconds,
                           std::span<const double> peak_memory) {
  summary_.step_done(result, seconds, peak_memory);
  recent_.add(result.times);
  // The progress line decides for itself whether this step is shown.
  const std::string times = times_text(recent_.ranks(), layout_) + ranks_left_;
  progress_.step_done({.step = done,
                       .loss = result.loss,
                       .tokens = result.tokens,
                       .learning_rate = result.learning_rate,
                       .gradient_norm = result.gradient_norm,
                       .times = times,
                       .loss_scale = result.loss_scale,
                       .skipped_steps = result.skipped_steps});
  curve_.points.push_back({done, result.loss});
  HDT_RETURN_IF_ERROR(add_events(done, result, seconds));
  nlohmann::ordered_json line = {{"step", done},
                                 {"loss", result.loss},
                                 {"tokens", result.tokens},
                                 {"grad_norm", result.gradient_norm},
                                 {"learning_rate", result.learning_rate},
                                 {"seconds", seconds}};
  // JSON has no infinities.
  if (!std::isfinite(result.gradient_norm)) line["grad_norm"] = nullptr;
  if (result.loss_scale > 0) {
    line["loss_scale"] = result.loss_scale;
    line["skipped"] = result.skipped;
    line["skipped_steps"] = result.skipped_steps;
  }
  if (const auto shares = training::shares_of(result.times)) {
    for (const auto& [name, share] : named(*shares)) line[std::string(name) + "_share"] = share;
  }
  if (const auto slowest = training::slowest_rank(result.times)) {
    line["slowest_rank"] = slowest->rank;
    line["slowest_factor"] = slowest->factor;
  }
  if (summary_.peak_memory().bytes > 0)
    line["peak_memory_bytes"] = static_cast<int64_t>(summary_.peak_memory().bytes);
  return log(line);
}

// Names are Megatron's where it has such a curve; of memory it knows that of GPUs only.
Status Reporter::add_events(int64_t done, const training::StepResult& result, double seconds) {
  if (!events_) return Status::ok();
  HDT_RETURN_IF_ERROR(events_->add_scalar("lm loss", done, result.loss));
  HDT_RETURN_IF_ERROR(events_->add_scalar("learning-rate", done, result.learning_rate));
  HDT_RETURN_IF_ERROR(events_->add_scalar("grad-norm", done, result.gradient_norm));
  HDT_RETURN_IF_ERROR(events_->add_scalar("iteration-time", done, seconds));
  if (result.loss_scale > 0) HDT_RETURN_IF_ERROR(events_->add_scalar("loss-scale", done, result.loss_scale));
  if (const auto rate = progress_.tokens_per_second()) {
    HDT_RETURN_IF_ERROR(events_->add_scalar("tokens-per-second", done, *rate));
  }
  if (const auto shares = training::shares_of(result.times)) {
    for (const auto& [name, share] : named(*shares))
      HDT_RETURN_IF_ERROR(events_->add_scalar(std::string(name) + "-share", done, share));
    HDT_RETURN_IF_ERROR(events_->add_scalar("communication-share", done, shares->pp + shares->dp));
  }
  if (summary_.peak_memory().bytes > 0)
    HDT_RETURN_IF_ERROR(events_->add_scalar("mem-max-resident-bytes", done, summary_.peak_memory().bytes));
  // A run that is killed keeps what it has done.
  return events_->flush();
}

Status Reporter::log(const nlohmann::ordered_json& line) {
  if (!log_.is_open()) return Status::ok();
  // Streams do not say why they fail; errno does, if a system call failed.
  errno = 0;
  log_ << line << std::endl;  // one write a line: a run that is killed loses none
  if (!log_) return Status::from_errno("--loss-log: cannot write " + flags_.loss_log, errno);
  return Status::ok();
}

// TensorBoard gets Megatron's names; its test loss has no name there, so it is called alike.
Status Reporter::evaluated(training::DataPart part, int64_t done, const training::EvaluationResult& result) {
  const std::string name = training::data_part_name(part);
  const double perplexity = std::exp(result.loss);
  progress_.finish();
  fmt::print("{} at step {}: loss {:.4f}, perplexity {:.4g}, {} tokens\n", name, done, result.loss,
             perplexity, training::format_grouped(result.tokens));
  std::fflush(stdout);
  progress_.skip_time();
  if (events_) {
    HDT_RETURN_IF_ERROR(events_->add_scalar("lm loss " + name, done, result.loss));
    HDT_RETURN_IF_ERROR(events_->add_scalar("lm loss " + name + " ppl", done, perplexity));
    HDT_RETURN_IF_ERROR(events_->flush());
  }
  return log({{"step", done},
              {name + "_loss", result.loss},
              {name + "_perplexity", perplexity},
              {name + "_tokens", result.tokens}});
}

void Reporter::go_on(std::vector<training::LossPoint> points, int64_t done, int first_world_size) {
  std::erase_if(points, [done](const training::LossPoint& point) { return point.step > done; });
  curve_.points = std::move(points);
  if (layout_.world_size() < first_world_size)
    ranks_left_ = fmt::format(" | {} of {} ranks", layout_.world_size(), first_world_size);
}

std::vector<training::LossPoint> Reporter::break_off() {
  progress_.finish();
  return std::move(curve_.points);
}

Status Reporter::finish(const std::string& subtitle, double unigram_entropy) {
  progress_.finish();
  if (events_) {
    HDT_RETURN_IF_ERROR(events_->flush());
    fmt::print("TensorBoard events: {}\n", events_->path());
  }
  if (log_.is_open()) {
    errno = 0;
    log_.close();
    if (!log_) return Status::from_errno("--loss-log: cannot write " + flags_.loss_log, errno);
  }
  // A run that has failed before its first step has no curve.
  if (!flags_.loss_curve.empty() && !curve_.points.empty()) {
    curve_.subtitle = subtitle;
    curve_.unigram_entropy = unigram_entropy;
    const Result<std::string> drawn = training::write_loss_curve(curve_, flags_.loss_curve);
    if (!drawn.is_ok()) return Status(drawn.status().code(), "--loss-curve: " + drawn.status().message());
    if (drawn.value().empty()) {
      fmt::print("loss curve: {}\n", flags_.loss_curve);
    } else {
      fmt::print(stderr, "hdt-train: warning: {}\n", drawn.value());
    }
  }
  return Status::ok();
}

}  // namespace hdt::tools
