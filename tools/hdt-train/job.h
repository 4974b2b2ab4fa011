// job.h: one rank's part of a whole run.
#pragma once

#include <string>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/token_input.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// Trains, reports (on rank 0) and generates text. All ranks of `world` must call it with the same flags
// and layout. Returns "" after a complete run, or a message if training diverged, which is the same on
// all ranks. An error is this rank's own.
Result<std::string> run_job(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout,
                            Communicator& world);

}  // namespace hdt::tools
