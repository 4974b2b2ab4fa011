// profile_job.h: measures this machine for hdt-plan: layers, optimizer and links, as a profile and a model.
#pragma once

#include "base/status.h"
#include "hdt/hdt.h"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// Collective over `world`. Writes flags.profile_folder/profile.toml and model.toml on rank 0.
Status run_profile(const TrainFlags& flags, hdtComm_t world);

}  // namespace hdt::tools
