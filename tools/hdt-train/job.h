// job.h: one rank's part of the whole run.
#pragma once

#include <string>

#include "base/status.h"
#include "hdt/hdt.h"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/token_input.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// Trains, reports (rank 0), generates. Collective over `world`. Returns the words about how training
// diverged, the same on all ranks; "": it did not.
Result<std::string> run_job(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout,
                            hdtComm_t world);

}  // namespace hdt::tools
