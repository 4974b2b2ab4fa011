// improve.h: hill climbing from a plan: what one change at a time makes faster.
//
// The changes: layers move between stages, micro-batches between replicas; replicas get other micro-batch
// sizes; stages exchange their places or all of them are placed by another rule; replicas exchange their
// places in the rings of reductions, where these cross nodes; two replicas become one longer pipeline, or one
// becomes two; a replica is left out; the plan gets another schedule. Replicas that are alike change
// together, and on small clusters each by itself as well. A change is kept if the played step is shorter; the
// search ends when none is, or with its budget.
#pragma once

#include <cstdint>
#include <vector>

#include "training/plan/search/plan_gauge.h"

namespace hdt::plan {

// Improves plans of one chunk a stage. It belongs to one search and runs on its thread; what is passed to the
// constructor must outlive it.
class Improvement {
 public:
  // `schedules`: those that a plan may get. At most `most_plays` plans are played for each start.
  Improvement(const PredictionInputs& inputs, const SearchOptions& options,
              std::vector<ScheduleKind> schedules, SearchState& state, PlanGauge& gauge, int64_t most_plays);

  // Climbs from the plan, which must be playable. Improvements of the best plan are the state's.
  void climb(Plan start, double seconds);

 private:
  // Replicas that change together, as indices.
  using Group = std::vector<size_t>;
  // Replicas that have the same micro-batch size and split on the same kinds of nodes; on small clusters each
  // replica by itself as well.
  std::vector<Group> groups() const;
  // Plays a changed plan, with memory fitted. True: it is shorter, and becomes the present one.
  bool try_plan(Plan plan);
  // The same after micro-batches were given out anew.
  bool try_shared(Plan plan);
  bool over() const { return plays_ >= most_plays_ || state_.ended_early; }

  // Each tries all changes of a kind, and is true if one was kept.
  bool move_layers();
  bool move_micro_batches();
  bool change_sizes();
  bool place_anew();
  bool exchange_stages();
  bool exchange_replicas();
  bool join_and_divide();
  bool leave_out();
  bool change_schedule();

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  const std::vector<ScheduleKind> schedules_;
  SearchState& state_;
  PlanGauge& gauge_;
  const int64_t most_plays_;
  int64_t plays_ = 0;
  Plan plan_;
  double seconds_ = 0;
};

}  // namespace hdt::plan
