// median.h: the median of measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hdt {

// The value in the middle; for an even number of values the mean of the middle two. `values` must not be
// empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace hdt
