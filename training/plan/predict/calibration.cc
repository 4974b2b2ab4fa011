// calibration.cc: intervals from residuals, and calibrations as files.
#include "training/plan/predict/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "training/plan/describe/toml_fields.h"

namespace hdt::plan {
namespace {

// The part of a record's file that other models take. It may be missing: then they take the defaults, and
// there is no interval.
constexpr const char* kElsewhere = "elsewhere";
constexpr const char* kRatios = "measured_over_predicted";

void read_links_and_memory(TomlFields& fields, Calibration& factors) {
  factors.point_to_point = fields.positive_or("point_to_point", factors.point_to_point);
  factors.allreduce = fields.positive_or("allreduce", factors.allreduce);
  factors.fixed_bytes = fields.not_negative_or("fixed_bytes", factors.fixed_bytes);
  factors.peer_bytes = fields.not_negative_or("peer_bytes", factors.peer_bytes);
}

std::string links_and_memory(const Calibration& factors) {
  return fmt::format("point_to_point = {}\nallreduce = {}\nfixed_bytes = {}\npeer_bytes = {}\n",
                     factors.point_to_point, factors.allreduce, factors.fixed_bytes, factors.peer_bytes);
}

std::string ratios_text(const std::vector<double>& ratios) {
  return fmt::format("{} = [{}]\n", kRatios, fmt::join(ratios, ", "));
}

}  // namespace

bool CalibrationRecord::knows(const std::vector<std::string>& kinds) const {
  return std::ranges::all_of(kinds,
                             [&](const std::string& kind) { return std::ranges::count(devices, kind) > 0; });
}

UsedCalibration calibration_for(const CalibrationRecord& record, const std::string& model,
                                const std::vector<std::string>& devices) {
  const bool same_devices = record.knows(devices);
  if (record.model.empty() || (same_devices && record.model == model))
    return {record.factors, record.ratios, ""};
  UsedCalibration used{record.elsewhere, record.elsewhere_ratios, ""};
  if (same_devices) {
    used.foreign = fmt::format(
        "calibration '{}' was learnt on model '{}', and this is '{}': its factors of computation and "
        "activations are left out",
        record.name, record.model, model);
    return used;
  }
  // How much memory a framework takes differs between machines as links do.
  used.factors = {};
  used.foreign =
      fmt::format("calibration '{}' was learnt on devices {}, and these are {}: its factors are left out",
                  record.name, fmt::join(record.devices, ", "), fmt::join(devices, ", "));
  return used;
}

std::optional<StepInterval> step_interval(const UsedCalibration& calibration, double predicted_seconds) {
  if (calibration.ratios.empty()) return std::nullopt;
  std::vector<double> errors;
  // A step that is twice as long as predicted is as wrong as one that is half as long, so errors are
  // logarithms.
  for (const double ratio : calibration.ratios) errors.push_back(std::abs(std::log(ratio)));
  std::ranges::sort(errors);
  const size_t rows = errors.size();
  const auto plans = static_cast<double>(rows + 1);
  const bool foreign = !calibration.foreign.empty();
  const size_t taken =
      foreign ? rows : std::min(rows, static_cast<size_t>(std::ceil(kIntervalCoverage * plans)));
  const double factor = std::exp(errors[taken - 1]);
  return StepInterval{predicted_seconds / factor, predicted_seconds * factor,
                      foreign ? 0 : static_cast<double>(taken) / plans, rows};
}

Result<CalibrationRecord> read_calibration(const std::string& path) {
  return read_toml<CalibrationRecord>(path, [](TomlFields& fields) {
    CalibrationRecord record;
    record.name = fields.text("name");
    record.model = fields.text_or("model", "");
    record.devices = fields.texts_or_none("devices");
    if (record.model.empty() != record.devices.empty())
      fields.fail("devices", "expected together with model: both say what the factors were learnt on");
    Calibration& factors = record.factors;
    factors.compute = fields.positive_or("compute", factors.compute);
    factors.launch = fields.optional_positive("launch");
    factors.activation = fields.positive_or("activation", factors.activation);
    read_links_and_memory(fields, factors);
    record.ratios = fields.positives(kRatios);
    std::vector<TomlFields> others = fields.tables(kElsewhere, 0);
    if (others.size() > 1) fields.fail(kElsewhere, "expected at most one table");
    for (TomlFields& other : others) {
      read_links_and_memory(other, record.elsewhere);
      record.elsewhere_ratios = other.positives(kRatios);
      other.end();
    }
    return record;
  });
}

std::string to_toml(const CalibrationRecord& record) {
  const Calibration& factors = record.factors;
  std::string out = fmt::format("name = {}\n", in_quotes(record.name));
  if (!record.model.empty())
    out += fmt::format("model = {}\ndevices = {}\n", in_quotes(record.model), quoted_list(record.devices));
  out += fmt::format("compute = {}\nactivation = {}\n", factors.compute, factors.activation);
  if (factors.launch) out += fmt::format("launch = {}\n", *factors.launch);
  out += links_and_memory(factors) + ratios_text(record.ratios);
  if (record.model.empty()) return out;
  return out + fmt::format("\n[[{}]]\n", kElsewhere) + links_and_memory(record.elsewhere) +
         ratios_text(record.elsewhere_ratios);
}

}  // namespace hdt::plan
