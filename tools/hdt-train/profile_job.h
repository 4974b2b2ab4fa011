// profile_job.h: measures this machine for hdt-plan: layers, optimizer and links, as a profile and a
// model.
#pragma once

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "training/plan/describe/model.h"

namespace hdt::tools {

// All ranks of `world` must call it. Rank 0 writes profile.toml and model.toml into
// flags.profile_folder. Takes about half a minute with the default flags.
Status run_profile(const TrainFlags& flags, Communicator& world);

// The model as a profile measures it: kinds of layers, their parameters and what they pass on, in the types
// of the flags.
plan::Model profiled_model(const TrainFlags& flags);

}  // namespace hdt::tools
