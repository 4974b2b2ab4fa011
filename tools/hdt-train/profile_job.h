// profile_job.h: measures this machine for hdt-plan: layers, optimizer and links, as a profile and a
// model.
#pragma once

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// All ranks of `world` must call it. Rank 0 writes profile.toml and model.toml into
// flags.profile_folder. Takes about half a minute with the default flags.
Status run_profile(const TrainFlags& flags, Communicator& world);

}  // namespace hdt::tools
