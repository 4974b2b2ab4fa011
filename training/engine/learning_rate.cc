// learning_rate.cc: the schedule of the learning rate (cosine: Loshchilov and Hutter 2017, "SGDR").
#include "training/engine/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <string_view>

namespace hdt::training {
namespace {

constexpr const char* kNames[] = {"cosine", "linear", "constant"};  // in the order of LearningRateDecay

}  // namespace

const char* learning_rate_decay_name(LearningRateDecay decay) { return kNames[static_cast<size_t>(decay)]; }

Result<LearningRateDecay> learning_rate_decay_of(std::string_view name) {
  const auto* const found =
      std::ranges::find(kNames, name, [](const char* one) { return std::string_view(one); });
  if (found != std::end(kNames)) return static_cast<LearningRateDecay>(found - std::begin(kNames));
  return Status(Code::kInvalidArgument, fmt::format("'{}' given, expected cosine, linear or constant", name));
}

double learning_rate(const LearningRateOptions& options, int64_t step) {
  // Step 0 already has a rate above 0, and the last step of the warm-up has the peak.
  if (step < options.warmup_steps) {
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  const int64_t span = std::max<int64_t>(options.total_steps - options.warmup_steps, 1);
  const double done =
      std::min(static_cast<double>(step - options.warmup_steps + 1) / static_cast<double>(span), 1.0);
  double left = 1.0;  // of the way from the minimum to the peak
  if (options.decay == LearningRateDecay::kCosine) left = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  if (options.decay == LearningRateDecay::kLinear) left = 1.0 - done;
  return options.minimum + (options.peak - options.minimum) * left;
}

}  // namespace hdt::training
