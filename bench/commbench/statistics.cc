// statistics.cc: percentiles and bandwidths.
#include "bench/commbench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hdt::bench {

double percentile(std::vector<double> values, double percent) {
  const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
  // 0 % would be rank 0, which does not exist.
  const size_t index = std::clamp<size_t>(rank, 1, values.size()) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

Timing summarise(const std::vector<double>& iterations_us, size_t bytes, double bus_factor) {
  Timing timing;
  timing.mean_us = std::accumulate(iterations_us.begin(), iterations_us.end(), 0.0) /
                   static_cast<double>(iterations_us.size());
  timing.p50_us = percentile(iterations_us, 50);
  timing.p99_us = percentile(iterations_us, 99);
  // Bytes per microsecond are 10^6 bytes per second.
  timing.algorithm_gbps = timing.mean_us > 0 ? static_cast<double>(bytes) / timing.mean_us / 1e3 : 0;
  timing.bus_gbps = timing.algorithm_gbps * bus_factor;
  return timing;
}

}  // namespace hdt::bench
