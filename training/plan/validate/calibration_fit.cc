// calibration_fit.cc: fits the calibration to measured steps.
//
// The factors of time come first: a forward selection adds factor after factor, as long as an
// information criterion says that the rows support one more. The factors of memory come after that, from
// the peaks.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "training/plan/predict/predictor.h"
#include "training/plan/validate/pattern_search.h"
#include "training/plan/validate/validation.h"

namespace hdt::plan {
namespace {

// A factor of time with its range. The search works on logarithms, so that a factor of 2 and of 1/2 are
// equally far from 1.
struct TimeFactor {
  void (*set)(Calibration& calibration, double value);
  double least;
  double most;
};
// Ranges that are physically plausible: a rate may be reached in part, and hardly be exceeded.
const std::array<TimeFactor, 5> kTimeFactors = {{
    {[](Calibration& calibration, double value) { calibration.compute = value; }, .5, 2},
    {[](Calibration& calibration, double value) { calibration.update = value; }, .02, 2},
    {[](Calibration& calibration, double value) { calibration.launch = value; }, .25, 1.5},
    {[](Calibration& calibration, double value) { calibration.point_to_point = value; }, .05, 1.25},
    {[](Calibration& calibration, double value) { calibration.allreduce = value; }, .05, 1.25},
}};

// Starts at factor 1 (logarithm 0) and ends at steps of 0.2 %.
SearchedParameter searched(const TimeFactor& factor) {
  return {0, std::log(factor.least), std::log(factor.most), 0.25, 0.002};
}

Calibration with_memory(Calibration calibration, const std::vector<double>& values) {
  calibration.activation = std::exp(values[0]);
  calibration.fixed_bytes = values[1] * kGibibyte;
  calibration.peer_bytes = values[2] * kGibibyte;
  return calibration;
}

// Akaike's criterion for small samples (Hurvich and Tsai, 1989), for errors with a Laplace distribution.
// It says whether another factor is worth having; lower is better. Infinite if there are too few rows
// for so many factors.
double criterion(double sum_of_absolute_errors, size_t rows, size_t factors) {
  const auto n = static_cast<double>(rows);
  const double k = static_cast<double>(factors) + 1;  // and the width of the distribution
  if (n - k - 1 <= 0) return std::numeric_limits<double>::infinity();
  return 2 * n * std::log(sum_of_absolute_errors / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1);
}

// The result of fitting some of the factors.
struct TimeFit {
  Calibration calibration;
  std::vector<size_t> factors;  // of kTimeFactors
  double criterion = 0;
};

// How far predictions with a calibration are from the measurements: the sum over the rows.
using Distance = std::function<double(const Calibration&)>;

// Fits the given factors and leaves the others at their defaults.
TimeFit fit_factors(const std::vector<size_t>& factors, size_t rows, const Distance& distance) {
  const auto with = [&](const std::vector<double>& logarithms) {
    Calibration calibration;
    for (size_t i = 0; i < factors.size(); ++i)
      kTimeFactors[factors[i]].set(calibration, std::exp(logarithms[i]));
    return calibration;
  };
  std::vector<SearchedParameter> parameters;
  for (const size_t factor : factors) parameters.push_back(searched(kTimeFactors[factor]));
  const Calibration best = with(
      pattern_search(parameters, [&](const std::vector<double>& values) { return distance(with(values)); }));
  return {best, factors, criterion(distance(best), rows, factors.size())};
}

// Adds the factor that helps the most, then the next one, as long as the criterion gets lower. All of
// them together are tried as well, because some help only together.
TimeFit choose_factors(size_t rows, const Distance& distance) {
  TimeFit best = fit_factors({}, rows, distance);
  while (true) {
    TimeFit next = best;
    for (size_t factor = 0; factor < kTimeFactors.size(); ++factor) {
      if (std::ranges::count(best.factors, factor) > 0) continue;
      std::vector<size_t> factors = best.factors;
      factors.push_back(factor);
      TimeFit fit = fit_factors(factors, rows, distance);
      if (fit.criterion < next.criterion) next = std::move(fit);
    }
    if (next.factors.size() == best.factors.size()) break;
    best = std::move(next);
  }
  TimeFit all = fit_factors({0, 1, 2, 3, 4}, rows, distance);
  return all.criterion < best.criterion ? all : best;
}

}  // namespace

Result<Calibration> fit_calibration(const PublishedSet& set, const std::vector<const Measurement*>& rows) {
  for (const Measurement* row : rows)
    HDT_RETURN_IF_ERROR(check_plan(row->plan, set.cluster, set.model, set.profile));
  // The sum over the rows. A row that cannot be predicted fails the whole fit; the search cannot be
  // stopped from here, so the failure is kept until it returns.
  Status failure;
  const auto distance = [&](const Calibration& calibration) {
    double sum = 0;
    for (const Measurement* row : rows) {
      const auto seconds =
          predict_checked_seconds({set.cluster, set.model, set.profile, calibration}, row->plan);
      if (!seconds.is_ok()) {
        failure = seconds.status();
        return sum;
      }
      sum += std::abs(std::log(seconds.value() / row->step_seconds));
    }
    return sum;
  };
  const TimeFit time = choose_factors(rows.size(), distance);
  HDT_RETURN_IF_ERROR(failure);

  // Rows without a measured peak say nothing about memory. Without any, memory keeps its defaults.
  std::vector<const Measurement*> with_peak = rows;
  std::erase_if(with_peak, [](const Measurement* row) { return row->peak_memory_bytes == 0; });
  if (with_peak.empty()) return time.calibration;

  // Memory does not depend on the factors of time, so no step has to be played. The factors partly
  // replace each other (a little more for each activation, a little less for all), which makes a long
  // ridge. The search therefore begins from several sides.
  std::vector<std::vector<WorkerMemory>> workers;
  for (const Measurement* row : with_peak)
    workers.push_back(worker_memory({set.cluster, set.model, set.profile, time.calibration}, row->plan));
  const auto memory_distance = [&](const std::vector<double>& values) {
    const PredictionInputs inputs{set.cluster, set.model, set.profile, with_memory(time.calibration, values)};
    double sum = 0;
    for (size_t i = 0; i < with_peak.size(); ++i) {
      double most = 0;
      for (const WorkerMemory& worker : workers[i]) most = std::max(most, worker.bytes(inputs));
      sum += std::abs(std::log(most / static_cast<double>(with_peak[i]->peak_memory_bytes)));
    }
    return sum;
  };
  std::vector<double> best;
  for (const double activation : {1.0, 0.1}) {
    for (const double fixed : {0.0, 4.0}) {
      for (const double peer : {0.0, 0.5}) {
        const std::vector<double> found =
            pattern_search({{std::log(activation), std::log(.001), std::log(2), 0.25, 0.002},
                            {fixed, 0, 16, 1, 0.01},
                            {peer, 0, 16, 0.5, 0.01}},
                           memory_distance);
        if (best.empty() || memory_distance(found) < memory_distance(best)) best = found;
      }
    }
  }
  return with_memory(time.calibration, best);
}

}  // namespace hdt::plan
