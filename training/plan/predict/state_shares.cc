// state_shares.cc: sums up the weights of the owners of each unit.
#include "training/plan/predict/state_shares.h"

namespace hdt::plan {

// With one replica each unit has one owner, which has all of it; only a tied one has two.
StateShares::StateShares(const Plan& plan, bool tied) {
  if (!plan.runtime.use_distributed_optimizer || (plan.replicas.size() == 1 && !tied)) return;
  for (const Replica& replica : plan.replicas) {
    size_t unit = 0;
    const auto add = [&](const Stage& stage, int units) {
      if (owners_.size() < unit + static_cast<size_t>(units))
        owners_.resize(unit + static_cast<size_t>(units));
      for (int i = 0; i < units; ++i) owners_[unit++] += stage.optimizer_shard_weight;
    };
    tied_owners_ += replica.stages.front().optimizer_shard_weight;
    if (replica.stages.size() > 1) tied_owners_ += replica.stages.back().optimizer_shard_weight;
    // The embedding is on the first stage, and the head on the last one.
    add(replica.stages.front(), 1);
    for (int chunk = 0; chunk < replica.chunks(); ++chunk) {
      for (const Stage& stage : replica.stages) add(stage, stage.layers_of(chunk));
    }
    add(replica.stages.back(), 1);
  }
}

double StateShares::update_seconds(const Stage& stage, int first, const StageCost& chunk) const {
  if (!sharded()) return chunk.update;
  double seconds = 0;
  for (const UnitCost& unit : chunk.units) seconds += of(stage, first++, unit) * unit.update;
  return seconds;
}

StateShares::StateShares(int units, size_t replicas, bool sharded) {
  if (sharded && replicas > 1) owners_.assign(static_cast<size_t>(units), static_cast<double>(replicas));
  tied_owners_ = 2 * static_cast<double>(replicas);
}

}  // namespace hdt::plan
