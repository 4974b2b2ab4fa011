// inputs.h: the files that most subcommands read.
#pragma once

#include <string>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/profile.h"
#include "training/plan/predict/calibration.h"

namespace hdt::tools {

// Paths of TOML files, as the flags name them.
struct InputPaths {
  std::string profile;
  std::string cluster;
  std::string model;
  // May be empty: the profile is taken as it is.
  std::string calibration;
};

// The contents of these files. The calibration is what of its file holds for this model and these machines.
// Without a file, its factors have their defaults, and there are no ratios.
struct Inputs {
  plan::Profile profile;
  plan::Cluster cluster;
  plan::Model model;
  plan::UsedCalibration calibration;
};

// Reads all files, and checks that the profile covers the model. An error names the file. A calibration that
// was learnt elsewhere is warned of on standard error.
Result<Inputs> read_inputs(const InputPaths& paths);

}  // namespace hdt::tools
