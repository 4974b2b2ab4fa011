// number_flags.cc: fp32, bf16, fp16 or fp64, and what follows from it.
#include "tools/hdt-train/number_flags.h"

#include <fmt/format.h>

#include <limits>

#include "tools/common/flag_checks.h"

namespace hdt::tools {
namespace {

using training::NumberType;

constexpr const char* kAccumulateInFp32 = "--accumulate-allreduce-grads-in-fp32";
constexpr const char* kDynamicScale[] = {"--initial-loss-scale", "--min-loss-scale", "--loss-scale-window",
                                         "--hysteresis"};
// Scales are powers of two or not far from them; larger ones are infinite in fp32.
constexpr double kMostScale = 1e30;
constexpr double kLeastScale = 1e-30;

}  // namespace

void add_numbers(CLI::App& app, TrainFlags& flags, NumberFlags& numbers) {
  const CLI::Validator scale = number(kLeastScale, kMostScale);
  const CLI::Validator steps = whole(1, 1'000'000'000);
  CLI::Option* const bf16 = app.add_flag_callback(
      "--bf16", [&flags] { flags.type = NumberType::kBFloat16; },
      "parameters and activations in bf16, gradients in fp32; the optimizer keeps fp32 masters of the "
      "parameters, which its updates add up in and a checkpoint has (default: all in fp32)");
  CLI::Option* const fp16 =
      app.add_flag_callback(
             "--fp16", [&flags] { flags.type = NumberType::kFloat16; },
             "parameters, activations between layers and gradients in fp16, with fp32 masters as with "
             "--bf16; "
             "the loss is scaled, and steps whose gradients are too large are skipped. It halves messages, "
             "saves "
             "memory where layers are recomputed, and saves no time on a CPU")
          ->excludes(bf16);
  app.add_flag_callback(
         "--fp64", [&flags] { flags.type = NumberType::kFloat64; },
         "parameters, activations, gradients, the optimizer's states and checkpoints in fp64: to compare "
         "layouts, whose differences are then those of rounding in fp64")
      ->excludes(bf16)
      ->excludes(fp16);
  app.add_flag("--grad-reduce-in-bf16", numbers.gradients_in_bf16,
               "with --bf16: gradients are in bf16, too, which halves their bytes on the network");
  app.add_flag(kAccumulateInFp32, numbers.gradients_in_fp32,
               "with --fp16: gradients are added up in fp32, in memory and on the network");
  app.add_option("--loss-scale", numbers.constant_scale,
                 "the loss times this factor, always, before its backward (default: with --fp16 a dynamic "
                 "scale, else none)")
      ->check(scale);
  app.add_option("--initial-loss-scale", numbers.dynamic.initial, "of --fp16, at the first step")
      ->check(scale)
      ->capture_default_str();
  app.add_option("--min-loss-scale", numbers.dynamic.minimum,
                 "the scale does not fall below it: gradients that are too large even then end the run")
      ->check(scale)
      ->capture_default_str();
  app.add_option("--loss-scale-window", numbers.dynamic.window,
                 "steps without gradients that are too large, after which the scale doubles")
      ->check(steps)
      ->capture_default_str();
  app.add_option("--hysteresis", numbers.dynamic.hysteresis,
                 "steps that are skipped before the scale is halved; begins again when it doubles")
      ->check(steps)
      ->capture_default_str();
}

Status take_numbers(const CLI::App& app, const NumberFlags& numbers, TrainFlags& flags) {
  const auto refused = [](std::string reason) { return Status(Code::kInvalidArgument, std::move(reason)); };
  if (numbers.gradients_in_bf16 && flags.type != NumberType::kBFloat16)
    return refused("--grad-reduce-in-bf16: expected --bf16, found none");
  flags.trainer.gradients = training::state_type_of(flags.type);
  if (numbers.gradients_in_bf16) flags.trainer.gradients = NumberType::kBFloat16;
  if (flags.type == NumberType::kFloat16 && !numbers.gradients_in_fp32)
    flags.trainer.gradients = NumberType::kFloat16;
  if (numbers.gradients_in_fp32 && flags.type != NumberType::kFloat16)
    flags.without_effect.push_back(
        fmt::format("{} (they are, unless --grad-reduce-in-bf16 is given)", kAccumulateInFp32));

  const bool dynamic = flags.type == NumberType::kFloat16 && !numbers.constant_scale;
  for (const char* name : kDynamicScale) {
    if (app.count(name) > 0 && !dynamic)
      flags.without_effect.push_back(fmt::format("{} (it belongs to --fp16 without --loss-scale)", name));
  }
  if (numbers.constant_scale) {
    flags.trainer.loss_scale = training::LossScaleOptions{.constant = *numbers.constant_scale};
  } else if (dynamic) {
    if (numbers.dynamic.initial < numbers.dynamic.minimum)
      return refused(fmt::format("--initial-loss-scale {}: expected at least --min-loss-scale {}",
                                 numbers.dynamic.initial, numbers.dynamic.minimum));
    flags.trainer.loss_scale = numbers.dynamic;
  }
  return Status::ok();
}

}  // namespace hdt::tools
