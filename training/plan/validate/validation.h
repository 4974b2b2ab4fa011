// validation.h: compares the predictor with measurements. Each row is predicted with a calibration that
// was fitted without it (leave one out).
#pragma once

#include <string>
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
  // The same with the factors that another model may take (CalibrationRecord::elsewhere).
  Calibration elsewhere;
  // In the set's order: rows predicted with such factors, fitted without the row.
  std::vector<ValidatedRow> with_elsewhere;
  // The factors of `calibration` that are at a limit of what is plausible: sentences without an end.
  std::vector<std::string> limits;
  // How many counted rows lie in the interval that the other rows' errors make.
  size_t inside_interval = 0;
  // Errors of the counted rows of `rows`.
  ErrorSummary step, memory;
  // Errors of the counted rows of `from_profile`.
  ErrorSummary profile_step, profile_memory;
  // Spearman's coefficient of predicted and measured steps: whether the predictor puts plans into the
  // right order.
  double rank_correlation = 0;

  // The calibration and the ratios of its rows, as a file that `hdt-plan predict` reads.
  CalibrationRecord record(const PublishedSet& set) const;
};

// What a set's calibration is worth on another set, all of whose rows are held out.
struct Transfer {
  // Indices of the sets.
  size_t from = 0;
  size_t to = 0;
  bool other_model = false;
  bool other_devices = false;
  // Errors of the counted rows: with what of the calibration holds there, and from the profile.
  ErrorSummary step, memory;
  ErrorSummary profile_step, profile_memory;
  // How many counted rows lie in their interval.
  size_t inside_interval = 0;
};

// Which factors are fitted: all, or those of CalibrationRecord::elsewhere.
enum class FitScope { kAll, kElsewhere };

// Fits the factors of Calibration: those of time to the measured steps, then those of memory to the
// peaks. The distance is the sum of |log(predicted / measured)|, so that one wrong measurement does not
// dominate the fit. A factor of time that the rows do not support keeps its default. An error of
// check_plan() or of a prediction is returned.
Result<Calibration> fit_calibration(const PublishedSet& set, const std::vector<const Measurement*>& rows,
                                    FitScope scope = FitScope::kAll);

// The factors that are at a limit, as "compute is 2, its upper limit": measurements ask for more there than
// is physically plausible, so something else is missing from the profile.
std::vector<std::string> limits_hit(const Calibration& calibration);

// Validates all rows of a set. kConfig if fewer than three rows count, or if a row cannot be predicted.
Result<Validation> validate(const PublishedSet& set);

// Each set's calibration on each other set: held out by model where the devices are the same, and by cluster
// where they are not. validations[i] is that of sets[i].
Result<std::vector<Transfer>> validate_transfers(const std::vector<PublishedSet>& sets,
                                                 const std::vector<Validation>& validations);

// Spearman's coefficient; equal values share their mean rank. 0 if all values of one side are equal.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace hdt::plan
