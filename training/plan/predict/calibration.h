// calibration.h: what a profile cannot know about a run: a few factors with a physical meaning, fitted to
// measured steps. The defaults take the profile as it is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::plan {

// Memory is fitted and printed in GiB.
inline constexpr double kGibibyte = double{1 << 30};

struct Calibration {
  // Seconds of computation in a run per second in the profile.
  double compute = 1;
  // Seconds of the optimizer in a run per second in the profile: profiled layer by layer, run over all of a
  // stage at once.
  double update = 1;
  // Where a profile is bound by the launching of kernels (stage_cost.h), the part of the host's time that is
  // not hidden behind the device. None: times are taken as they were measured.
  std::optional<double> launch;
  // Reached rate of messages between stages, and of gradient reduction, per profiled rate of the link.
  double point_to_point = 1;
  double allreduce = 1;
  // Kept activations per profiled byte; bytes that every device needs besides; and for each further device of
  // its tensor-parallel group.
  double activation = 1;
  double fixed_bytes = 0;
  double peer_bytes = 0;
  bool operator==(const Calibration&) const = default;
};

// A calibration and how well it did: what `validate` learns from a set of measured steps, for plans that were
// not measured.
struct CalibrationRecord {
  std::string name;
  Calibration factors;
  // Measured over predicted step, one for each counted row, predicted with factors that had not seen the row.
  std::vector<double> ratios;
};

// Where a step lies, with the share of plans that it holds for.
struct StepInterval {
  double low = 0;  // seconds
  double high = 0;
  double coverage = 0;
  size_t rows = 0;
};

// None without ratios. From order statistics, with no assumption on the errors' distribution but that the
// plan is like the measured ones (split conformal prediction: Vovk, Gammerman, Shafer, "Algorithmic learning
// in a random world", 2005): of n + 1 plans alike, the new one's error is among the k smallest with
// probability k / (n + 1). k is the least that reaches 80 %, or n.
std::optional<StepInterval> step_interval(const CalibrationRecord& record, double predicted_seconds);

// As TOML; a failure (kConfig) names file, field and reason.
Result<CalibrationRecord> read_calibration(const std::string& path);
std::string to_toml(const CalibrationRecord& record);

}  // namespace hdt::plan
