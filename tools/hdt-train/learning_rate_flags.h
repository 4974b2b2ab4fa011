// learning_rate_flags.h: the flags of the learning rate's schedule, in Megatron's names. Part of flags.h.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// The values on the command line, until take_learning_rate() has read them. No value: not given.
struct LearningRateFlags {
  std::optional<double> minimum;
  std::optional<int64_t> warmup_steps;
  std::optional<double> warmup_fraction;
  std::optional<int64_t> decay_steps;
};

// Adds the flags. `flags` and `rate` must outlive the parsing.
void add_learning_rate(CLI::App& app, TrainFlags& flags, LearningRateFlags& rate);

// After parsing, when flags.train_iters is known: fills in flags.trainer.learning_rate. kInvalidArgument
// names the flags that contradict each other.
Status take_learning_rate(const LearningRateFlags& rate, TrainFlags& flags);

}  // namespace hdt::tools
