// state_shares.h: which part of the optimizer's states of a unit each of its owners keeps, and so updates.
#pragma once

#include <vector>

#include "training/engine/layout.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// The shares of one plan. A value; it needs the whole plan, with all replicas, and is then asked for any
// stage of it. The engine rounds shards to cache lines (training/engine/shards.h), and the shares do not.
class StateShares {
 public:
  // The plan must be one that check_replicas() accepts. `tied`: whether the model has training::kTiedUnit.
  StateShares(const Plan& plan, bool tied);

  // Those of a plan of that many replicas, all of whose weights are alike and whose stages are several, for a
  // model of that many units. States are sharded if `sharded` and there are several replicas.
  StateShares(int units, size_t replicas, bool sharded);

  // The share of a stage that owns the unit: 1 unless the states are sharded.
  double of(const Stage& stage, int unit) const {
    if (owners_.empty()) return 1;
    const double owners = unit == training::kTiedUnit ? tied_owners_ : owners_[static_cast<size_t>(unit)];
    return stage.optimizer_shard_weight / owners;
  }
  // The share of all that `cost` is the cost of: what belongs to the unit alone, and the tied matrix if it is
  // a part of that.
  double of(const Stage& stage, int unit, const UnitCost& cost) const {
    const double own = of(stage, unit);
    return cost.tied_part == 0 ? own : own + cost.tied_part * (of(stage, training::kTiedUnit) - own);
  }
  // The seconds in which a stage updates its shares of one of its chunks, whose first unit is `first` and
  // whose cost is `chunk`.
  double update_seconds(const Stage& stage, int first, const StageCost& chunk) const;
  // Whether each owner has its own shard only.
  bool sharded() const { return !owners_.empty(); }

 private:
  std::vector<double> owners_;  // by unit: the sum of its owners' weights; empty: states are whole
  double tied_owners_ = 0;      // the same of the tied unit
};

}  // namespace hdt::plan
