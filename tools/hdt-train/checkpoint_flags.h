// checkpoint_flags.h: where a run saves, how often, and from where it goes on.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// Adds the flags, in Megatron's names; --keep-checkpoints is not in Megatron. `flags` must outlive the
// parsing.
void add_checkpoints(CLI::App& app, TrainFlags& flags);

}  // namespace hdt::tools
