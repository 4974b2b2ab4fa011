// megatron_flags.h: flags of Megatron's command lines that are no settings of hdt-train. Those that say what
// it does anyway, or that only change how fast Megatron is, are taken without effect, so that a script moves
// over as it is. All others that Megatron users have are refused with the reason, all at once. Part of
// flags.h.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// The values on the command line, until take_megatron_flags() has read them.
struct MegatronFlags {
  std::map<std::string, std::string> values;  // by flag; "" for a flag without a value
};

// Adds the flags; those that are refused are not in the help. `megatron` must outlive the parsing.
void add_megatron_flags(CLI::App& app, MegatronFlags& megatron);

// After parsing: kInvalidArgument names each flag that changes what is trained and that hdt-train does not
// have. Fills in flags.without_effect, which rank 0 prints.
Status take_megatron_flags(const MegatronFlags& megatron, TrainFlags& flags);

}  // namespace hdt::tools
