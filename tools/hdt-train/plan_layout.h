// plan_layout.h: the layout from a plan of hdt-plan (--plan) instead of flags.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// Reads --plan into the flags. Refuses flags beside it that say something else, and plans that the engine
// does not run.
Status take_plan(const CLI::App& app, TrainFlags& flags);

// The layout for this number of ranks, from the plan or the flags.
Result<training::Layout> make_run_layout(const TrainFlags& flags);

}  // namespace hdt::tools
