// measured_runs.h: own runs as a set of measurements: plans with their measured steps, against the
// cluster, the model and the profile that they ran on.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/toml_fields.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {

// Reads what was measured of a plan from its table: step_seconds, peak_memory_bytes and left_out.
void read_measured(TomlFields& fields, Measurement& measured);

// Adds a row to the set, whose cluster, model and profile are there: with micro-batch sizes that were not
// measured derived, and the plan checked. kConfig if it does not fit them; `where` names the plan in
// messages.
Status add_row(const std::string& where, Measurement row, PublishedSet& set);

// Reads a TOML file (docs/predictor.md describes it) and fills the set's name and rows. The set's
// cluster, model and profile must be there already. Each [[run]] names the file of its plan, relative to
// the folder of this file. kConfig with file, field and reason.
Status read_measured_runs(const std::string& path, PublishedSet& set);

// The text of such a file for the set's rows. Row i's plan is in the file plans[i], relative to the folder of
// the text.
std::string measured_runs_toml(const PublishedSet& set, const std::vector<std::string>& plans);

}  // namespace hdt::plan
