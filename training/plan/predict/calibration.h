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
//
// A factor corrects the measurement that it was learnt against. The factors of computation correct a
// profile, which is one of a model on its devices; those of links correct the rates between these devices.
// So a record says what it was learnt on, and calibration_for() takes what holds elsewhere.
struct CalibrationRecord {
  // The name of the set.
  std::string name;
  Calibration factors;
  // Measured over predicted step, one entry for each counted row. Each is predicted with factors that
  // were fitted without that row.
  std::vector<double> ratios;
  // The model and the device kinds that it was learnt on. An empty model: it holds for all inputs.
  std::string model = {};
  std::vector<std::string> devices = {};
  // What another model may take: the factors of links, and memory that every device needs. They were fitted
  // with all others at their defaults.
  Calibration elsewhere = {};
  // As `ratios`, predicted with such factors.
  std::vector<double> elsewhere_ratios = {};

  // Whether all these kinds are among `devices`.
  bool knows(const std::vector<std::string>& kinds) const;
};

// What of a record holds for a model on devices of these kinds.
struct UsedCalibration {
  Calibration factors;
  // Measured over predicted step of the rows that stand for it.
  std::vector<double> ratios;
  // Why the record's own factors do not hold. Empty: they do.
  std::string foreign;
};

// All of the record for the model and the devices that it was learnt on, and for a record that names no
// model. Another model on these devices takes `elsewhere`, and other devices take no factor. `devices` are
// all kinds of the cluster.
UsedCalibration calibration_for(const CalibrationRecord& record, const std::string& model,
                                const std::vector<std::string>& devices);

// The interval in which a step lies, and the share of plans for which that is true.
struct StepInterval {
  // Seconds.
  double low = 0;
  double high = 0;
  // k / (n + 1); less than 80 % if there are fewer than 4 rows. 0 where the rows are of another model or
  // other devices: one set says nothing about how sets differ.
  double coverage = 0;
  // Measured steps that the interval is made of.
  size_t rows = 0;
};

// The interval around a predicted step; nothing without ratios. It is made of order statistics. Nothing
// is assumed about the distribution of the errors, only that the plan is like the measured ones (split
// conformal prediction: Vovk, Gammerman, Shafer, "Algorithmic learning in a random world", 2005): among
// n + 1 plans that are alike, the new one's error is one of the k smallest with probability k / (n + 1).
// k is the smallest number that reaches 80 %, or n. A foreign calibration promises no share; then k is n, the
// largest error that was seen.
std::optional<StepInterval> step_interval(const UsedCalibration& calibration, double predicted_seconds);

// The share of plans that an interval shall hold for.
inline constexpr double kIntervalCoverage = 0.8;

// A record as a TOML file (docs/predictor.md). An error is kConfig and names the file, the field and the
// reason.
Result<CalibrationRecord> read_calibration(const std::string& path);
std::string to_toml(const CalibrationRecord& record);

}  // namespace hdt::plan
