// statistics.h: what is reported of the times of one placement.
#pragma once

#include <cstddef>
#include <vector>

namespace hdt::bench {

struct Timing {
  double mean_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double algorithm_gbps = 0;  // 10^9 bytes per second
  double bus_gbps = 0;
};

// The nearest-rank percentile: the least value that at least `percent` % of `values` (not empty) do not
// exceed.
double percentile(std::vector<double> values, double percent);

// `iterations_us`: one time per iteration, each the maximum over ranks; not empty.
Timing summarise(const std::vector<double>& iterations_us, size_t bytes, double bus_factor);

}  // namespace hdt::bench
