// number_flags.h: the flags of the types of numbers and of the loss scale, in Megatron's names. Part of
// flags.h.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// The values on the command line, until take_numbers() has read them.
struct NumberFlags {
  bool gradients_in_bf16 = false;
  bool gradients_in_fp32 = false;
  std::optional<double> constant_scale;  // no value: a dynamic one
  training::LossScaleOptions dynamic;
  std::vector<std::string> of_dynamic_scale;  // its flags that were given
};

// Adds the flags. `flags` and `numbers` must outlive the parsing.
void add_numbers(CLI::App& app, TrainFlags& flags, NumberFlags& numbers);

// After parsing: fills in the type of gradients and the loss scale. Flags of a dynamic scale that is not
// there are noted as without effect. kInvalidArgument names the flags that contradict each other.
Status take_numbers(const CLI::App& app, const NumberFlags& numbers, TrainFlags& flags);

}  // namespace hdt::tools
