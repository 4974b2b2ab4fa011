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

// The contents of these files. Without a calibration, its factors have their defaults, and there are no
// ratios.
struct Inputs {
  plan::Profile profile;
  plan::Cluster cluster;
  plan::Model model;
  plan::CalibrationRecord calibration;
};

// Reads all files, and checks that the profile covers the model. An error names the file.
Result<Inputs> read_inputs(const InputPaths& paths);

}  // namespace hdt::tools
