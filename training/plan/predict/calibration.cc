// calibration.cc: intervals from residuals, and calibrations as files.
#include "training/plan/predict/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "training/plan/describe/toml_fields.h"

namespace hdt::plan {
namespace {

// The share of plans that an interval shall hold for.
constexpr double kCoverage = 0.8;

}  // namespace

std::optional<StepInterval> step_interval(const CalibrationRecord& record, double predicted_seconds) {
  if (record.ratios.empty()) return std::nullopt;
  std::vector<double> errors;
  // A step that is twice as long as predicted is as wrong as one that is half as long, so errors are
  // logarithms.
  for (const double ratio : record.ratios) errors.push_back(std::abs(std::log(ratio)));
  std::ranges::sort(errors);
  const size_t rows = errors.size();
  const auto plans = static_cast<double>(rows + 1);
  const size_t taken = std::min(rows, static_cast<size_t>(std::ceil(kCoverage * plans)));
  const double factor = std::exp(errors[taken - 1]);
  return StepInterval{predicted_seconds / factor, predicted_seconds * factor,
                      static_cast<double>(taken) / plans, rows};
}

Result<CalibrationRecord> read_calibration(const std::string& path) {
  return read_toml<CalibrationRecord>(path, [](TomlFields& fields) {
    CalibrationRecord record;
    record.name = fields.text("name");
    Calibration& factors = record.factors;
    factors.compute = fields.positive_or("compute", factors.compute);
    factors.update = fields.positive_or("update", factors.update);
    factors.launch = fields.optional_positive("launch");
    factors.point_to_point = fields.positive_or("point_to_point", factors.point_to_point);
    factors.allreduce = fields.positive_or("allreduce", factors.allreduce);
    factors.activation = fields.positive_or("activation", factors.activation);
    factors.fixed_bytes = fields.not_negative_or("fixed_bytes", factors.fixed_bytes);
    factors.peer_bytes = fields.not_negative_or("peer_bytes", factors.peer_bytes);
    record.ratios = fields.positives("measured_over_predicted");
    return record;
  });
}

std::string to_toml(const CalibrationRecord& record) {
  const Calibration& factors = record.factors;
  std::string out = fmt::format("name = {}\ncompute = {}\nupdate = {}\n", in_quotes(record.name),
                                factors.compute, factors.update);
  if (factors.launch) out += fmt::format("launch = {}\n", *factors.launch);
  return out + fmt::format(
                   "point_to_point = {}\nallreduce = {}\nactivation = {}\nfixed_bytes = {}\npeer_bytes = {}\n"
                   "measured_over_predicted = [{}]\n",
                   factors.point_to_point, factors.allreduce, factors.activation, factors.fixed_bytes,
                   factors.peer_bytes, fmt::join(record.ratios, ", "));
}

}  // namespace hdt::plan
