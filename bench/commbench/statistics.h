// statistics.h: what is reported about the times of one placement.
#pragma once

#include <cstddef>
#include <vector>

namespace hdt::bench {

// Figures over all iterations.
struct Timing {
  double mean_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  // 10^9 bytes per second, from the mean time.
  double algorithm_gbps = 0;
  // algorithm_gbps x the bus factor (plan.h).
  double bus_gbps = 0;
};

// The nearest-rank percentile: the smallest value that at least `percent` % of `values` do not exceed.
// `values` must not be empty.
double percentile(std::vector<double> values, double percent);

// `iterations_us` holds one time for each iteration, that of the slowest rank; it must not be empty.
Timing summarise(const std::vector<double>& iterations_us, size_t bytes, double bus_factor);

}  // namespace hdt::bench
