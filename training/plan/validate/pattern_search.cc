// pattern_search.cc: the search of Hooke and Jeeves.
#include "training/plan/validate/pattern_search.h"

#include <algorithm>

namespace hdt::plan {

std::vector<double> pattern_search(const std::vector<SearchedParameter>& parameters,
                                   const std::function<double(const std::vector<double>&)>& cost) {
  std::vector<double> best;
  std::vector<double> steps;
  for (const SearchedParameter& parameter : parameters) {
    best.push_back(parameter.start);
    steps.push_back(parameter.step);
  }
  double least = cost(best);
  // Tries to move one parameter by one step; keeps the first move that helps.
  const auto improve = [&](size_t i) {
    for (const double step : {steps[i], -steps[i]}) {
      std::vector<double> moved = best;
      moved[i] = std::clamp(best[i] + step, parameters[i].least, parameters[i].most);
      if (moved[i] == best[i]) continue;
      const double moved_cost = cost(moved);
      if (moved_cost >= least) continue;
      best = std::move(moved);
      least = moved_cost;
      return true;
    }
    return false;
  };
  // Goes on in the direction in which a round of moves has led, as long as it helps. Single steps alone
  // are slow along a ridge.
  const auto follow = [&](const std::vector<double>& before) {
    std::vector<double> way = best;
    for (size_t i = 0; i < way.size(); ++i) way[i] -= before[i];
    while (true) {
      std::vector<double> moved = best;
      for (size_t i = 0; i < way.size(); ++i)
        moved[i] = std::clamp(best[i] + way[i], parameters[i].least, parameters[i].most);
      const double moved_cost = cost(moved);
      if (moved_cost >= least) return;
      best = std::move(moved);
      least = moved_cost;
    }
  };
  const auto coarse = [&] {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i] > parameters[i].finest) return true;
    }
    return false;
  };
  // Every round improves the cost or halves the steps, so the search ends.
  while (coarse()) {
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): improve() changes `best`
    const std::vector<double> before = best;
    bool improved = false;
    for (size_t i = 0; i < parameters.size(); ++i) improved = improve(i) || improved;
    if (improved)
      follow(before);
    else
      for (double& step : steps) step /= 2;
  }
  return best;
}

}  // namespace hdt::plan
