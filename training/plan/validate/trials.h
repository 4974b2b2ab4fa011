// trials.h: trials of real clusters as a set of measurements: one file that names the model, the profile and
// the cluster, and has the seconds of an iteration for each layout. docs/predictor.md describes it.
//
// What a layout needs of its framework is in its own fields and in those of the model: stages that exchange
// messages in lockstep (lockstep_exchange, or background_send_bytes 0 in DeepSpeed's order), matrices that
// first and last stages tie (tied_parameter_bytes), and sums over a tensor-parallel group (forward_sums,
// backward_sums).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {

// The file alone, without those that it names. Paths are as they stand in it.
struct TrialFile {
  // One [[trials]] table.
  struct Trial {
    // Its plan is in `plan_path` if that is not empty.
    Measurement measured;
    std::string plan_path;
  };
  std::string name;
  std::string model, profile, cluster;
  std::vector<Trial> trials;
};

// True if the path is a TOML file with [[trials]], right or wrong.
bool has_trials(const std::string& path);

// Every number is in its range, names can be names of files and no two trials have the same one, and
// check_replicas() accepts the layouts that stand in the file. kConfig with file, field and reason.
Result<TrialFile> read_trial_file(const std::string& path);

// That file as the only set of the result, with the files that it names, relative to its own folder. The
// plans are checked against model, profile and cluster.
Result<std::vector<PublishedSet>> read_trials(const std::string& path);

}  // namespace hdt::plan
