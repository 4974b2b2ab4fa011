// candidates.cc: the pool is sorted once, when it is played.
#include "training/plan/search/candidates.h"

#include <algorithm>

namespace hdt::plan {

Candidates::Candidates(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state,
                       PlanGauge& gauge, size_t most)
    : inputs_(inputs), options_(options), state_(state), gauge_(gauge), most_(most) {}

bool Candidates::add(Plan plan) {
  if (plan.replicas.empty()) return true;
  if (const auto link = missing_link(plan, inputs_.cluster, inputs_.profile)) {
    state_.leave_out(*link);
    return true;
  }
  if (!gauge_.fit(plan) || gauge_.bound(plan) >= state_.best_seconds) return true;
  // The first plan at once, so that there is one when the time is up.
  if (!state_.best) state_.play(inputs_, options_, plan);
  const double estimate = gauge_.estimate(plan);
  for (const Entry& entry : entries_) {
    if (entry.estimate == estimate && entry.plan == plan) return true;
  }
  entries_.push_back({estimate, std::move(plan)});
  // Half of the pool goes at once, as plans of large clusters are large.
  if (entries_.size() >= 2 * most_) shrink();
  return !state_.out_of_time() && !state_.ended_early;
}

void Candidates::shrink() {
  std::ranges::stable_sort(entries_, {}, &Entry::estimate);
  if (entries_.size() <= most_) return;
  state_.not_played += static_cast<int64_t>(entries_.size() - most_);
  entries_.resize(most_);
}

void Candidates::play(double limit) {
  shrink();
  for (Entry& entry : entries_) {
    if (gauge_.bound(entry.plan) >= state_.best_seconds) continue;
    if (state_.ended_early || entry.estimate >= limit * state_.best_seconds)
      ++state_.not_played;
    else
      state_.play(inputs_, options_, std::move(entry.plan));
  }
  entries_.clear();
}

}  // namespace hdt::plan
