// median.h: the middle of measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hdt {

// Of an even number of values (not none) the mean of the middle two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace hdt
