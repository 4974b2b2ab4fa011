// pattern_search.h: minimises a function of a few bounded parameters without derivatives (Hooke and Jeeves,
// "Direct search solution of numerical and statistical problems", 1961): tries a step up and down in each,
// goes on in the direction found, halves the steps when none helps.
#pragma once

#include <functional>
#include <vector>

namespace hdt::plan {

struct SearchedParameter {
  double start = 0;
  double least = 0;
  double most = 0;
  double step = 0;    // the first
  double finest = 0;  // the search ends when all steps are below
};

std::vector<double> pattern_search(const std::vector<SearchedParameter>& parameters,
                                   const std::function<double(const std::vector<double>&)>& cost);

}  // namespace hdt::plan
