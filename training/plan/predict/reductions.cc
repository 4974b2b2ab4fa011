// reductions.cc: makes reductions from owner sets, in the buckets of the engine.
#include "training/plan/predict/reductions.h"

#include <algorithm>

#include "training/plan/predict/allreduce_time.h"

namespace hdt::plan {
namespace {

// The reduction of `units`, a part of `range`. The cost model is asked only for reductions by libhdt
// between several nodes, and only if the profile has no rates that were measured for allreduces.
Reduction reduction_of(const PredictionInputs& inputs, const Plan& plan, const training::Layout& layout,
                       const OwnedRange& range, training::UnitRange units) {
  Reduction reduction{range.workers, units, range.owners, 0, range.hops, {}};
  for (const int worker : range.workers) {
    const training::Position position = layout.position_of(worker);
    const Stage& stage = plan.replicas[position.replica].stages[position.stage];
    double bytes = 0;
    for (int unit = units.first; unit < units.end; ++unit)
      bytes += static_cast<double>(inputs.model.unit(unit).parameter_bytes.at(stage.tensor_parallel)) *
               stage.tensor_parallel;
    // Owners with other tensor-parallel degrees hold more or fewer copies of what is not cut, so their
    // bytes may differ. The ring carries the largest number.
    reduction.bytes = std::max(reduction.bytes, bytes);
  }
  if (plan.runtime.reduction == ReductionKind::kHdt && range.nodes.size() > 1 &&
      !allreduce_measured(inputs, range.nodes))
    reduction.seconds_alone = allreduce_seconds(inputs, range.nodes, reduction.bytes);
  return reduction;
}

}  // namespace

double Reduction::bytes_over_each_hop() const {
  const auto all = static_cast<double>(owners);
  return 2 * (all - 1) / all * bytes;
}

std::vector<Reduction> plan_reductions(const PredictionInputs& inputs, const Plan& plan,
                                       const training::Layout& layout,
                                       const std::vector<OwnedRange>& ranges) {
  std::vector<Reduction> reductions;
  if (ranges.empty()) return reductions;
  // All gradients of an owner set are complete at the same time, so nothing is gained by buckets.
  if (!plan.runtime.overlap_gradients) {
    for (const OwnedRange& range : ranges)
      reductions.push_back(reduction_of(inputs, plan, layout, range, range.units));
    return reductions;
  }
  // Buckets are planned for all units at once; the engine plans them for each rank's own units. Owner
  // sets do not cross the borders of stages, so the buckets are the same.
  std::vector<training::OwnerSet> sets;
  for (const OwnedRange& range : ranges) sets.push_back({range.workers, range.units});
  // The engine closes buckets by size. It has one degree; here the smallest degree that the model knows
  // stands for it.
  const auto unit_bytes = [&](int unit) {
    const auto& [degree, bytes] = *inputs.model.unit(unit).parameter_bytes.begin();
    return static_cast<size_t>(bytes) * static_cast<size_t>(degree);
  };
  const std::vector<training::Bucket> buckets =
      training::plan_buckets(sets, training::UnitRange{0, layout.num_units()}.numbers(), unit_bytes,
                             static_cast<size_t>(plan.runtime.bucket_bytes));
  for (const training::Bucket& bucket : buckets)
    reductions.push_back(reduction_of(inputs, plan, layout, ranges[bucket.owner_set], bucket.units));
  return reductions;
}

}  // namespace hdt::plan
