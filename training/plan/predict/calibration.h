// calibration.h: what a profile cannot know about a run: a few factors with a physical meaning, fitted
// to measured steps (validate/validation.h). The defaults take the profile as it is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::plan {

// Memory is fitted and printed in GiB.
inline constexpr double kGibibyte = double{1 << 30};

// The factors. All are above 0; the two sizes in bytes may be 0.
struct Calibration {
  // Seconds of computation in a run per second in the profile.
  double compute = 1;
  // Seconds of the optimizer in a run, per second in the profile. The profile times the update layer by
  // layer, and a run updates all of a stage at once.
  double update = 1;
  // Where the profile is limited by the launching of kernels (stage_cost.h): the part of the host's time
  // that is not hidden behind the device. No value: times are taken as they were measured.
  std::optional<double> launch;
  // The rate that messages between stages reach, per profiled rate of the link.
  double point_to_point = 1;
  // The same for the reduction of gradients.
  double allreduce = 1;
  // Kept bytes of activations, per profiled byte.
  double activation = 1;
  // Bytes that every device needs besides, as for the runtime and the libraries.
  double fixed_bytes = 0;
  // Bytes that a device needs for each further device of its tensor-parallel group.
  double peer_bytes = 0;
  bool operator==(const Calibration&) const = default;
};

// A calibration and how well it predicts: what `hdt-plan validate` learns from a set of measured steps
// and keeps in a file, for plans that were not measured.
struct CalibrationRecord {
  // The name of the set.
  std::string name;
  Calibration factors;
  // Measured over predicted step, one entry for each counted row. Each is predicted with factors that
  // were fitted without that row.
  std::vector<double> ratios;
};

// The interval in which a step lies, and the share of plans for which that is true.
struct StepInterval {
  // Seconds.
  double low = 0;
  double high = 0;
  // k / (n + 1); less than 80 % if there are fewer than 4 rows.
  double coverage = 0;
  // Measured steps that the interval is made of.
  size_t rows = 0;
};

// The interval around a predicted step; nothing without ratios. It is made of order statistics. Nothing
// is assumed about the distribution of the errors, only that the plan is like the measured ones (split
// conformal prediction: Vovk, Gammerman, Shafer, "Algorithmic learning in a random world", 2005): among
// n + 1 plans that are alike, the new one's error is one of the k smallest with probability k / (n + 1).
// k is the smallest number that reaches 80 %, or n.
std::optional<StepInterval> step_interval(const CalibrationRecord& record, double predicted_seconds);

// A record as a TOML file (docs/predictor.md). An error is kConfig and names the file, the field and the
// reason.
Result<CalibrationRecord> read_calibration(const std::string& path);
std::string to_toml(const CalibrationRecord& record);

}  // namespace hdt::plan
