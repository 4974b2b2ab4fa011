// validation.cc: leaves one row out at a time, and sums up the errors.
#include "training/plan/validate/validation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "training/plan/predict/predictor.h"

namespace hdt::plan {
namespace {

Result<ValidatedRow> predicted_row(const PublishedSet& set, const Measurement& row,
                                   const Calibration& calibration) {
  const auto prediction = predict({set.cluster, set.model, set.profile, calibration}, row.plan);
  if (!prediction.is_ok()) return prediction.status();
  return ValidatedRow{&row, calibration, prediction.value().step_seconds,
                      prediction.value().most_memory_bytes()};
}

// The mean is kept up to date with every error.
void add(ErrorSummary& summary, double error) {
  ++summary.rows;
  summary.mean += (std::abs(error) - summary.mean) / static_cast<double>(summary.rows);
  summary.worst = std::max(summary.worst, std::abs(error));
}

void add(ErrorSummary& step, ErrorSummary& memory, const ValidatedRow& row) {
  if (!row.measured->left_out.empty()) return;
  add(step, row.step_error());
  if (row.has_memory()) add(memory, row.memory_error());
}

// Whether a measured step lies in the interval around the predicted one.
bool inside(const UsedCalibration& calibration, const ValidatedRow& row) {
  const auto interval = step_interval(calibration, row.step_seconds);
  const double measured = row.measured->step_seconds;
  return interval && interval->low <= measured && measured <= interval->high;
}

// Measured over predicted, of all counted rows but `without`.
std::vector<double> ratios_of(const std::vector<ValidatedRow>& rows, const Measurement* without = nullptr) {
  std::vector<double> ratios;
  for (const ValidatedRow& row : rows) {
    if (row.measured->left_out.empty() && row.measured != without)
      ratios.push_back(row.measured->step_seconds / row.step_seconds);
  }
  return ratios;
}

// Quadratic; sets have some dozen rows.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double value : values) {
    const auto below = std::ranges::count_if(values, [&](double other) { return other < value; });
    const auto equal = std::ranges::count(values, value);
    ranks.push_back(static_cast<double>(below) + static_cast<double>(equal - 1) / 2);
  }
  return ranks;
}

}  // namespace

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks_of(a);
  const std::vector<double> y = ranks_of(b);
  // Ranks are 0 .. n - 1 and ties keep their sum, so the mean is known.
  const double mean = (static_cast<double>(x.size()) - 1) / 2;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx * yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

Result<Validation> validate(const PublishedSet& set) {
  std::vector<const Measurement*> counted;
  for (const Measurement& row : set.rows) {
    if (row.left_out.empty()) counted.push_back(&row);
  }
  // With two rows, only one would be left to fit.
  if (counted.size() < 3)
    return Status(Code::kConfig, set.name + ": fewer than 3 rows count, too few to leave one out");
  Validation validation;
  auto all = fit_calibration(set, counted);
  if (!all.is_ok()) return all.status();
  auto all_elsewhere = fit_calibration(set, counted, FitScope::kElsewhere);
  if (!all_elsewhere.is_ok()) return all_elsewhere.status();
  // These have seen all rows. They are for other plans, and predict only rows that do not count.
  validation.calibration = all.value();
  validation.elsewhere = all_elsewhere.value();
  validation.limits = limits_hit(all.value());
  for (const Measurement& row : set.rows) {
    std::vector<const Measurement*> others = counted;
    std::erase(others, &row);
    // A row that does not count is in no fit, so the calibration of all rows has not seen it either.
    const auto calibration = row.left_out.empty() ? fit_calibration(set, others) : all;
    if (!calibration.is_ok()) return calibration.status();
    const auto elsewhere =
        row.left_out.empty() ? fit_calibration(set, others, FitScope::kElsewhere) : all_elsewhere;
    if (!elsewhere.is_ok()) return elsewhere.status();
    auto calibrated = predicted_row(set, row, calibration.value());
    auto with_elsewhere = predicted_row(set, row, elsewhere.value());
    auto from_profile = predicted_row(set, row, {});
    if (!calibrated.is_ok()) return calibrated.status();
    if (!with_elsewhere.is_ok()) return with_elsewhere.status();
    if (!from_profile.is_ok()) return from_profile.status();
    validation.rows.push_back(calibrated.take());
    validation.with_elsewhere.push_back(with_elsewhere.take());
    validation.from_profile.push_back(from_profile.take());
  }
  for (const ValidatedRow& row : validation.rows) add(validation.step, validation.memory, row);
  for (const ValidatedRow& row : validation.from_profile)
    add(validation.profile_step, validation.profile_memory, row);
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const ValidatedRow& row : validation.rows) {
    if (!row.measured->left_out.empty()) continue;
    validation.inside_interval += inside({{}, ratios_of(validation.rows, row.measured), ""}, row) ? 1 : 0;
    predicted.push_back(row.step_seconds);
    measured.push_back(row.measured->step_seconds);
  }
  validation.rank_correlation = rank_correlation(predicted, measured);
  return validation;
}

CalibrationRecord Validation::record(const PublishedSet& set) const {
  return {set.name,
          calibration,
          ratios_of(rows),
          set.model.name,
          set.cluster.device_kinds(),
          elsewhere,
          ratios_of(with_elsewhere)};
}

Result<std::vector<Transfer>> validate_transfers(const std::vector<PublishedSet>& sets,
                                                 const std::vector<Validation>& validations) {
  std::vector<Transfer> transfers;
  for (size_t from = 0; from < sets.size(); ++from) {
    const CalibrationRecord record = validations[from].record(sets[from]);
    for (size_t to = 0; to < sets.size(); ++to) {
      if (from == to) continue;
      const PublishedSet& set = sets[to];
      const std::vector<std::string> devices = set.cluster.device_kinds();
      const UsedCalibration used = calibration_for(record, set.model.name, devices);
      Transfer transfer;
      transfer.from = from;
      transfer.to = to;
      transfer.other_model = record.model != set.model.name;
      transfer.other_devices = !record.knows(devices);
      transfer.profile_step = validations[to].profile_step;
      transfer.profile_memory = validations[to].profile_memory;
      for (const Measurement& measured : set.rows) {
        if (!measured.left_out.empty()) continue;
        const auto row = predicted_row(set, measured, used.factors);
        if (!row.is_ok()) return row.status();
        add(transfer.step, transfer.memory, row.value());
        transfer.inside_interval += inside(used, row.value()) ? 1 : 0;
      }
      transfers.push_back(transfer);
    }
  }
  return transfers;
}

}  // namespace hdt::plan
