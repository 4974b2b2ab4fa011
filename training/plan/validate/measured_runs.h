// measured_runs.h: own runs: plans with the step that was measured, against the cluster, model and profile
// they ran on.
#pragma once

#include <string>

#include "base/status.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {

// Takes `set`'s cluster, model and profile, and fills name and rows from a TOML file (docs/predictor.md
// describes it). Each [[run]] names a plan's file, found from the folder of this one. kConfig with file,
// field and reason.
Status read_measured_runs(const std::string& path, PublishedSet& set);

}  // namespace hdt::plan
