// recompute_flags.h: the flags of activation recomputation, in Megatron's names. Part of flags.h.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// What the command line says, until take_recomputation() has read it. Empty: not given.
struct RecomputeFlags {
  std::string granularity;
  std::string method;
  std::optional<int> num_layers;
};

// Adds the flags. `recompute` must outlive the parsing.
void add_recomputation(CLI::App& app, RecomputeFlags& recompute);

// After parsing: fills in flags.recomputed_layers and flags.recompute_attention. kInvalidArgument names a
// flag that is missing, or a value that the engine does not have, and what is accepted.
Status take_recomputation(const RecomputeFlags& recompute, TrainFlags& flags);

}  // namespace hdt::tools
