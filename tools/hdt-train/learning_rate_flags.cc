// learning_rate_flags.cc: peak, minimum, warm-up and decay.
#include "tools/hdt-train/learning_rate_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/common/flag_checks.h"

namespace hdt::tools {
namespace {

// Short enough for small models; a run of fewer than 200 steps warms up for a tenth of them.
constexpr int64_t kDefaultWarmUp = 20;  // steps
constexpr int64_t kMostSteps = 1'000'000'000;

}  // namespace

void add_learning_rate(CLI::App& app, TrainFlags& flags, LearningRateFlags& rate) {
  auto& options = flags.trainer.learning_rate;
  const CLI::Validator not_negative = float_number(0);
  app.add_option("--lr", options.peak, "learning rate after the warm-up")
      ->check(not_negative)
      ->capture_default_str();
  app.add_option("--min-lr", rate.minimum, "learning rate at the end of the decay (default: a tenth of --lr)")
      ->check(not_negative);
  app.add_option_function<std::string>(
         "--lr-decay-style",
         [&options](const std::string& name) {
           const Result<training::LearningRateDecay> found = training::learning_rate_decay_of(name);
           if (!found.is_ok()) throw CLI::ValidationError("--lr-decay-style", found.status().message());
           options.decay = found.value();
         },
         "from --lr to --min-lr: cosine, linear, or constant, which stays at --lr")
      ->type_name("NAME")
      ->default_str("cosine");
  app.add_option("--lr-decay-iters", rate.decay_steps,
                 "step at which --min-lr is reached (default: --train-iters)")
      ->check(whole(1, kMostSteps));
  app.add_option("--lr-warmup-iters", rate.warmup_steps,
                 "steps of linear warm-up (default: 20, or fewer in a short run)")
      ->check(whole(0, kMostSteps));
  app.add_option("--lr-warmup-fraction", rate.warmup_fraction, "the same, as a part of --lr-decay-iters")
      ->check(number(0, 1));
}

Status take_learning_rate(const LearningRateFlags& rate, TrainFlags& flags) {
  auto& options = flags.trainer.learning_rate;
  const auto refused = [](std::string reason) { return Status(Code::kInvalidArgument, std::move(reason)); };
  if (rate.minimum.value_or(0) > options.peak)
    return refused(fmt::format("--min-lr {}: expected at most --lr {}", *rate.minimum, options.peak));
  options.minimum = rate.minimum.value_or(options.peak / 10);
  options.total_steps = rate.decay_steps.value_or(flags.train_iters);
  if (rate.warmup_steps && rate.warmup_fraction)
    return refused("--lr-warmup-iters and --lr-warmup-fraction exclude each other");
  const char* const steps = rate.decay_steps ? "--lr-decay-iters" : "--train-iters";
  if (rate.warmup_steps.value_or(0) > options.total_steps)
    return refused(fmt::format("--lr-warmup-iters {}: expected at most {} {}", *rate.warmup_steps, steps,
                               options.total_steps));
  options.warmup_steps = rate.warmup_fraction
                             ? std::llround(*rate.warmup_fraction * static_cast<double>(options.total_steps))
                             : rate.warmup_steps.value_or(std::min(kDefaultWarmUp, options.total_steps / 10));
  return Status::ok();
}

}  // namespace hdt::tools
