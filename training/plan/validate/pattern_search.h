// pattern_search.h: minimises a function of a few bounded parameters without derivatives (Hooke and
// Jeeves, "Direct search solution of numerical and statistical problems", 1961). It tries a step up and
// a step down in each parameter, goes on in the direction that it found, and halves the steps if none of
// them helps. Played steps are not smooth functions of the factors, so methods that need derivatives
// would fail.
#pragma once

#include <functional>
#include <vector>

namespace hdt::plan {

// A parameter with its bounds; `start` is between them.
struct SearchedParameter {
  double start = 0;
  double least = 0;
  double most = 0;
  // The first step.
  double step = 0;
  // The search ends when the steps of all parameters are at most this long.
  double finest = 0;
};

// Returns the best parameters found: a local minimum. `cost` is called with values inside the bounds
// only; lower is better.
std::vector<double> pattern_search(const std::vector<SearchedParameter>& parameters,
                                   const std::function<double(const std::vector<double>&)>& cost);

}  // namespace hdt::plan
