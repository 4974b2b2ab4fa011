// candidates.h: plans that are tried as a whole, the most promising one first.
#pragma once

#include <vector>

#include "training/plan/search/plan_gauge.h"

namespace hdt::plan {

// A pool of complete plans. It belongs to one search and runs on its thread; what is passed to the
// constructor must outlive it.
class Candidates {
 public:
  // Keeps at most `most` plans, those with the shortest estimates.
  Candidates(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state,
             PlanGauge& gauge, size_t most);

  // Takes a plan whose micro-batches are given out, unless it does not fit memory, needs a link that is
  // missing (the state notes that), cannot be better than the best plan so far, or is known. False: the
  // budget is used up.
  bool add(Plan plan);
  // Plays all plans whose bound is shorter than the best step, in the order of their estimates, except those
  // with an estimate longer than `limit` times the best step. The state counts what was not played for its
  // estimate, and what the pool had no room for.
  void play(double limit);

 private:
  struct Entry {
    double estimate = 0;
    Plan plan;
  };
  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  SearchState& state_;
  PlanGauge& gauge_;
  const size_t most_;
  // Sorts the entries and keeps those with the shortest estimates.
  void shrink();
  std::vector<Entry> entries_;
};

}  // namespace hdt::plan
