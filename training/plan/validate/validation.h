// validation.h: the predictor against published measurements, calibrated without the row that is predicted.
#pragma once

#include <vector>

#include "base/status.h"
#include "training/plan/predict/calibration.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {

struct ValidatedRow {
  const Measurement* measured = nullptr;
  Calibration calibration;  // from all counted rows but this one
  double step_seconds = 0;  // predicted
  double memory_bytes = 0;  // predicted, of the device that needs most

  double step_error() const { return step_seconds / measured->step_seconds - 1; }
  bool has_memory() const { return measured->peak_memory_bytes > 0; }
  double memory_error() const { return memory_bytes / static_cast<double>(measured->peak_memory_bytes) - 1; }
};

struct ErrorSummary {
  size_t rows = 0;   // that count
  double mean = 0;   // of the absolute errors
  double worst = 0;  // the largest of them
};

struct Validation {
  std::vector<ValidatedRow> rows;          // calibrated, leave one out
  std::vector<ValidatedRow> from_profile;  // with the default calibration
  Calibration calibration;                 // from all counted rows: for plans that were not measured
  ErrorSummary step, memory;               // of the counted rows
  ErrorSummary profile_step, profile_memory;
  double rank_correlation = 0;  // Spearman's, of predicted and measured step

  // What was learnt, for plans that were not measured.
  CalibrationRecord record(const std::string& name) const;
};

// Fits the factors of Calibration: those of time to the measured steps, then those of memory to the peaks, by
// the sum of absolute logarithms of predicted / measured (one wrong measurement must not turn the fit). A
// factor of time that the rows do not speak for stays as the profile has it.
Result<Calibration> fit_calibration(const PublishedSet& set, const std::vector<const Measurement*>& rows);

Result<Validation> validate(const PublishedSet& set);

// Spearman's coefficient; ties take their mean rank. 0 where all of one side are equal.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace hdt::plan
