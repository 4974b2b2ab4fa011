// inputs.h: the files that predict and search read.
#pragma once

#include <string>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/profile.h"
#include "training/plan/predict/calibration.h"

namespace hdt::tools {

struct InputPaths {
  std::string profile;
  std::string cluster;
  std::string model;
  std::string calibration;  // or empty: the profile as it is
};

struct Inputs {
  plan::Profile profile;
  plan::Cluster cluster;
  plan::Model model;
  plan::CalibrationRecord calibration;
};

Result<Inputs> read_inputs(const InputPaths& paths);

}  // namespace hdt::tools
