// calibration_fit.cc: fits the calibration to measured steps.
//
// The factors of time come first: of all sets of them the one that an information criterion likes best. Each
// factor has a prior around its default, so that rows have to speak for a value that is far from it. The
// factors of memory come after that, from the peaks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "training/plan/predict/predictor.h"
#include "training/plan/validate/pattern_search.h"
#include "training/plan/validate/validation.h"

namespace hdt::plan {
namespace {

// A factor of time with its range and its prior. The search works on logarithms, so that a factor of 2 and
// of 1/2 are equally far from 1.
struct TimeFactor {
  const char* name;
  // Nothing: the calibration does not use it.
  std::optional<double> (*get)(const Calibration& calibration);
  void (*set)(Calibration& calibration, double value);
  double least;
  double most;
  // The standard deviation of its logarithm before any row was seen.
  double spread;
  // Whether another model on the same devices may take it.
  bool elsewhere;
};
// Ranges that are physically plausible: a rate may be reached in part, and hardly be exceeded. A profile
// times the kernels that a run executes, so these differ the least.
const std::array<TimeFactor, 4> kTimeFactors = {{
    {"compute", [](const Calibration& calibration) { return std::optional(calibration.compute); },
     [](Calibration& calibration, double value) { calibration.compute = value; }, .5, 2, .2, false},
    {"launch", [](const Calibration& calibration) { return calibration.launch; },
     [](Calibration& calibration, double value) { calibration.launch = value; }, .25, 1.5, .3, false},
    {"point_to_point",
     [](const Calibration& calibration) { return std::optional(calibration.point_to_point); },
     [](Calibration& calibration, double value) { calibration.point_to_point = value; }, .05, 1.25, .5, true},
    {"allreduce", [](const Calibration& calibration) { return std::optional(calibration.allreduce); },
     [](Calibration& calibration, double value) { calibration.allreduce = value; }, .05, 1.25, .5, true},
}};
// The same for memory. The sizes are in GiB.
constexpr double kLeastActivation = .001;
constexpr double kMostActivation = 2;
constexpr double kMostGibibytes = 16;

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

// What the rows say against factors (twice the negative logarithm of the likelihood, for errors with a
// Laplace distribution), and what the prior says. Lower is better.
double distance_and_prior(double sum_of_absolute_errors, size_t rows, double prior) {
  const auto n = static_cast<double>(rows);
  // No measurement is better than that, and a perfect fit has no logarithm.
  constexpr double kLeastError = 1e-6;
  return 2 * n * std::log(sum_of_absolute_errors / n + kLeastError) + prior;
}

// Akaike's price of factors for small samples (Hurvich and Tsai, 1989). With it the above says whether
// another factor is worth having. Infinite if there are too few rows for so many factors.
double price(size_t rows, size_t factors) {
  const auto n = static_cast<double>(rows);
  const double k = static_cast<double>(factors) + 1;  // and the width of the distribution
  if (n - k - 1 <= 0) return std::numeric_limits<double>::infinity();
  return 2 * k + 2 * k * (k + 1) / (n - k - 1);
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
  const auto cost = [&](const std::vector<double>& logarithms) {
    double prior = 0;
    for (size_t i = 0; i < factors.size(); ++i)
      prior += std::pow(logarithms[i] / kTimeFactors[factors[i]].spread, 2);
    return distance_and_prior(distance(with(logarithms)), rows, prior);
  };
  std::vector<SearchedParameter> parameters;
  for (const size_t factor : factors) parameters.push_back(searched(kTimeFactors[factor]));
  const std::vector<double> best = pattern_search(parameters, cost);
  return {with(best), factors, cost(best) + price(rows, factors.size())};
}

// The best of all sets of factors. Some help only together, so none is judged alone.
TimeFit choose_factors(size_t rows, FitScope scope, const Distance& distance) {
  std::vector<size_t> allowed;
  for (size_t factor = 0; factor < kTimeFactors.size(); ++factor) {
    if (scope == FitScope::kAll || kTimeFactors[factor].elsewhere) allowed.push_back(factor);
  }
  const TimeFit none = fit_factors({}, rows, distance);
  TimeFit best = none;
  for (size_t chosen = 1; chosen < size_t{1} << allowed.size(); ++chosen) {
    std::vector<size_t> factors;
    for (size_t i = 0; i < allowed.size(); ++i) {
      if ((chosen >> i & 1) != 0) factors.push_back(allowed[i]);
    }
    if (std::isinf(price(rows, factors.size()))) continue;
    TimeFit fit = fit_factors(factors, rows, distance);
    if (fit.criterion < best.criterion) best = std::move(fit);
  }
  // Rows of one model cannot say whether another one needs the factor, so the defaults stay until they have
  // essentially no support left: a difference of 10 (Burnham and Anderson, Model selection and multimodel
  // inference, 2002).
  constexpr double kNoSupport = 10;
  if (scope == FitScope::kElsewhere && none.criterion - best.criterion < kNoSupport) return none;
  return best;
}

}  // namespace

std::vector<std::string> limits_hit(const Calibration& calibration) {
  std::vector<std::string> hit;
  const auto note = [&hit](const char* name, double value, double least, double most) {
    // A search that ends at a limit ends at the very value, up to the rounding of a logarithm.
    constexpr double kRounding = 1e-9;
    for (const double limit : {least, most}) {
      if (std::abs(value - limit) <= kRounding * limit)
        hit.push_back(
            fmt::format("{} is {:.3g}, its {} limit", name, limit, limit == least ? "lower" : "upper"));
    }
  };
  for (const TimeFactor& factor : kTimeFactors) {
    if (const auto value = factor.get(calibration)) note(factor.name, *value, factor.least, factor.most);
  }
  note("activation", calibration.activation, kLeastActivation, kMostActivation);
  // 0 is their default, and no limit of what is plausible.
  constexpr double kNone = -1;
  note("fixed_bytes", calibration.fixed_bytes, kNone, kMostGibibytes * kGibibyte);
  note("peer_bytes", calibration.peer_bytes, kNone, kMostGibibytes * kGibibyte);
  return hit;
}

Result<Calibration> fit_calibration(const PublishedSet& set, const std::vector<const Measurement*>& rows,
                                    FitScope scope) {
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
  const TimeFit time = choose_factors(rows.size(), scope, distance);
  HDT_RETURN_IF_ERROR(failure);

  // Rows without a measured peak say nothing about memory. Without any, memory keeps its defaults.
  std::vector<const Measurement*> with_peak = rows;
  std::erase_if(with_peak, [](const Measurement* row) { return row->peak_memory_bytes == 0; });
  if (with_peak.empty()) return time.calibration;

  // Memory does not depend on the factors of time, so no step has to be played. The factors partly
  // replace each other (a little more for each activation, a little less for all), which makes a long
  // ridge. The search therefore begins from several sides.
  std::vector<std::vector<StageMemory>> workers;
  for (const Measurement* row : with_peak)
    workers.push_back(worker_memory({set.cluster, set.model, set.profile, time.calibration}, row->plan));
  const auto memory_distance = [&](const std::vector<double>& values) {
    const PredictionInputs inputs{set.cluster, set.model, set.profile, with_memory(time.calibration, values)};
    double sum = 0;
    for (size_t i = 0; i < with_peak.size(); ++i) {
      double most = 0;
      for (const StageMemory& worker : workers[i]) most = std::max(most, worker.bytes(inputs));
      sum += std::abs(std::log(most / static_cast<double>(with_peak[i]->peak_memory_bytes)));
    }
    return sum;
  };
  std::vector<double> best;
  const bool all = scope == FitScope::kAll;
  // Elsewhere activations count as profiled: their factor belongs to the profile.
  for (const double activation : all ? std::vector{1.0, 0.1} : std::vector{1.0}) {
    for (const double fixed : {0.0, 4.0}) {
      for (const double peer : {0.0, 0.5}) {
        const std::vector<double> found =
            pattern_search({{std::log(activation), all ? std::log(kLeastActivation) : 0,
                             all ? std::log(kMostActivation) : 0, 0.25, 0.002},
                            {fixed, 0, kMostGibibytes, 1, 0.01},
                            {peer, 0, kMostGibibytes, 0.5, 0.01}},
                           memory_distance);
        if (best.empty() || memory_distance(found) < memory_distance(best)) best = found;
      }
    }
  }
  return with_memory(time.calibration, best);
}

}  // namespace hdt::plan
