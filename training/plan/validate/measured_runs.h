// measured_runs.h: own runs as a set of measurements: plans with their measured steps, against the
// cluster, the model and the profile that they ran on.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {

// Reads a TOML file (docs/predictor.md describes it) and fills the set's name and rows. The set's
// cluster, model and profile must be there already. Each [[run]] names the file of its plan, relative to
// the folder of this file. kConfig with file, field and reason.
Status read_measured_runs(const std::string& path, PublishedSet& set);

// The text of such a file for the set's rows. Row i's plan is in the file plans[i], relative to the folder of
// the text.
std::string measured_runs_toml(const PublishedSet& set, const std::vector<std::string>& plans);

}  // namespace hdt::plan
