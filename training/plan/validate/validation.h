// validation.h: compares the predictor with measurements. Each row is predicted with a calibration that
// was fitted without it (leave one out).
#pragma once

#include <vector>

#include "base/status.h"
#include "training/plan/predict/calibration.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {

// One row: what was measured and what was predicted.
struct ValidatedRow {
  // A row of the PublishedSet, which must outlive this one.
  const Measurement* measured = nullptr;
  // Fitted to all counted rows but this one.
  Calibration calibration;
  double step_seconds = 0;  // predicted
  // Predicted, for the device that needs the most.
  double memory_bytes = 0;

  // Errors are relative to the measurement: +0.1 is a prediction that is a tenth too high.
  double step_error() const { return step_seconds / measured->step_seconds - 1; }
  // Whether the peak was measured.
  bool has_memory() const { return measured->peak_memory_bytes > 0; }
  double memory_error() const { return memory_bytes / static_cast<double>(measured->peak_memory_bytes) - 1; }
};

// The absolute errors of all counted rows.
struct ErrorSummary {
  size_t rows = 0;   // that count
  double mean = 0;   // of the absolute errors
  double worst = 0;  // the largest of them
};

// The result for one set.
struct Validation {
  // In the set's order, each predicted with its own calibration.
  std::vector<ValidatedRow> rows;
  // The same rows, predicted with the default calibration.
  std::vector<ValidatedRow> from_profile;
  // Fitted to all counted rows, for plans that were not measured.
  Calibration calibration;
  // Errors of the counted rows of `rows`.
  ErrorSummary step, memory;
  // Errors of the counted rows of `from_profile`.
  ErrorSummary profile_step, profile_memory;
  // Spearman's coefficient of predicted and measured steps: whether the predictor puts plans into the
  // right order.
  double rank_correlation = 0;

  // The calibration and the ratios of its rows, as a file that `hdt-plan predict` reads.
  CalibrationRecord record(const std::string& name) const;
};

// Fits the factors of Calibration: those of time to the measured steps, then those of memory to the
// peaks. The distance is the sum of |log(predicted / measured)|, so that one wrong measurement does not
// dominate the fit. A factor of time that the rows do not support keeps its default. An error of
// check_plan() or of a prediction is returned.
Result<Calibration> fit_calibration(const PublishedSet& set, const std::vector<const Measurement*>& rows);

// Validates all rows of a set. kConfig if fewer than three rows count, or if a row cannot be predicted.
Result<Validation> validate(const PublishedSet& set);

// Spearman's coefficient; equal values share their mean rank. 0 if all values of one side are equal.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace hdt::plan
