// calibration.h: what a profile cannot know about a run: a few factors with a physical meaning, fitted to measured steps.
// The defaults take the profile as it is.
#pragma once

#include <optional>

namespace hdt::plan {

struct Calibration {
  // Seconds of computation in a run per second in the profile.
  double compute = 1;
  // Where a profile is bound by the launching of kernels (stage_cost.h), the part of the host's time that is not
  // hidden behind the device. None: times are taken as they were measured.
  std::optional<double> launch;
  // Reached rate of messages between stages, and of gradient reduction, per profiled rate of the link.
  double point_to_point = 1;
  double allreduce = 1;
  // Kept activations per profiled byte; bytes that every device needs besides; and for each further device of its
  // tensor-parallel group.
  double activation = 1;
  double fixed_bytes = 0;
  double peer_bytes = 0;
};

}  // namespace hdt::plan
