// goodput.cc: closed form, best interval, and failures played out.
#include "training/plan/predict/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace hdt::plan {

// expm1 keeps the digits where failures are rare, and the segment is short against the time between two
// of them.
Goodput expected_goodput(const FailureModel& model, double interval_seconds) {
  const double segment = interval_seconds + model.checkpoint_seconds;
  Goodput result;
  result.interval_seconds = interval_seconds;
  double expected = segment;
  if (model.failures_per_second > 0) {
    const double rate = model.failures_per_second;
    expected = std::exp(model.restart_seconds * rate) * std::expm1(segment * rate) / rate;
  }
  result.share = interval_seconds / expected;
  result.checkpoint_share = model.checkpoint_seconds / expected;
  result.failure_share = 1 - segment / expected;
  return result;
}

// The share has one maximum. With x = interval / M and c = checkpoint / M it falls exactly where (1 - x)
// e^x e^c < 1; that expression decreases for x > 0, from e^c >= 1 at x = 0. So bisection on its
// logarithm, log(1 - x) + x + c, finds the maximum.
Goodput best_goodput(const FailureModel& model) {
  if (model.failures_per_second <= 0) {
    Goodput none;
    none.interval_seconds = std::numeric_limits<double>::infinity();
    return none;
  }
  // Times are in units of M. The interval is between 0 and M; bisection is on a logarithmic scale, as
  // intervals may be many orders of magnitude smaller than M, and begins at Young's.
  const double checkpoint = model.checkpoint_seconds * model.failures_per_second;
  double low = std::numeric_limits<double>::min();
  double high = 1;
  for (int i = 0; i < 2000 && low < high; ++i) {
    const double middle = i == 0 ? std::min(.5, std::sqrt(2 * checkpoint)) : std::sqrt(low) * std::sqrt(high);
    if (middle <= low || middle >= high) break;
    const bool rises = std::log1p(-middle) + middle + checkpoint > 0;
    (rises ? low : high) = middle;
  }
  return expected_goodput(model, high / model.failures_per_second);
}

Goodput simulated_goodput(const FailureModel& model, double interval_seconds, int64_t segments,
                          uint64_t seed) {
  std::mt19937_64 random(seed);
  // The distribution needs a rate above 0; 1e-300 means that nothing fails while doubles last.
  std::exponential_distribution<double> lifetime(std::max(model.failures_per_second, 1e-300));
  const double segment = interval_seconds + model.checkpoint_seconds;
  double time = 0;
  double next_failure = lifetime(random);
  double lost = 0;
  // Lets `seconds` pass. False if a failure came before; the time until then is lost.
  const auto survive = [&](double seconds) {
    if (next_failure >= time + seconds) {
      time += seconds;
      return true;
    }
    lost += next_failure - time;
    time = next_failure;
    next_failure = time + lifetime(random);
    return false;
  };
  for (int64_t done = 0; done < segments; ++done) {
    // A failed segment is followed by restarts until one of them succeeds. All of that is lost time.
    while (!survive(segment)) {
      while (!survive(model.restart_seconds)) {
      }
      lost += model.restart_seconds;
    }
  }
  const auto kept = static_cast<double>(segments);
  return {interval_seconds, kept * interval_seconds / time, kept * model.checkpoint_seconds / time,
          lost / time};
}

}  // namespace hdt::plan
