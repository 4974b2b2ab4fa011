// reductions.cc: makes reductions from owner sets, in the buckets of the engine.
#include "training/plan/predict/reductions.h"

#include <algorithm>
#include <iterator>

#include "training/plan/predict/allreduce_time.h"

namespace hdt::plan {
namespace {

// The reduction of `units`, a part of the range with that index. The cost model is asked only for reductions
// by libhdt between several nodes, and only if the profile has no rates that were measured for allreduces.
Reduction reduction_of(const PredictionInputs& inputs, const Plan& plan, const training::Layout& layout,
                       const std::vector<OwnedRange>& ranges, int index, training::UnitRange units) {
  const OwnedRange& range = ranges[static_cast<size_t>(index)];
  Reduction reduction;
  reduction.workers = range.workers;
  reduction.units = units;
  reduction.range = index;
  reduction.sharded = range.least_share < 1;
  reduction.owners = range.owners;
  reduction.hops = range.hops;
  for (const int worker : range.workers) {
    const training::Position position = layout.position_of(worker);
    const Stage& stage = plan.replicas[position.replica].stages[position.stage];
    double bytes = 0;  // of parameters
    for (int unit = units.first; unit < units.end; ++unit)
      bytes +=
          static_cast<double>(inputs.model.bytes_of(unit, stage.tensor_parallel)) * stage.tensor_parallel;
    // Owners with other tensor-parallel degrees hold more or fewer copies of what is not cut, so their
    // bytes may differ. The ring carries the largest number.
    reduction.gather_bytes = std::max(reduction.gather_bytes, bytes);
  }
  reduction.bytes = inputs.model.gradient_factor() * reduction.gather_bytes;
  const bool by_hdt = plan.runtime.reduction == ReductionKind::kHdt;
  const auto all = static_cast<double>(range.owners);
  double part_of_hop = 2 * (all - 1) / all;
  if (reduction.sharded) part_of_hop = by_hdt ? 1 : 1 - range.least_share;
  reduction.bytes_over_each_hop = part_of_hop * reduction.bytes;
  reduction.gather_bytes_over_each_hop = part_of_hop * reduction.gather_bytes;
  if (!by_hdt || range.nodes.size() < 2 || allreduce_measured(inputs, range.nodes)) return reduction;
  if (reduction.sharded) {
    reduction.seconds_alone = reduce_scatter_seconds(inputs, range.nodes, range.owners, reduction.bytes);
    reduction.gather_seconds_alone =
        all_gather_seconds(inputs, range.nodes, range.owners, reduction.gather_bytes);
  } else {
    reduction.seconds_alone = allreduce_seconds(inputs, range.nodes, reduction.bytes);
  }
  return reduction;
}

}  // namespace

std::vector<Reduction> plan_reductions(const PredictionInputs& inputs, const Plan& plan,
                                       const training::Layout& layout,
                                       const std::vector<OwnedRange>& ranges) {
  std::vector<Reduction> reductions;
  if (ranges.empty()) return reductions;
  // All gradients of an owner set are complete at the same time, so nothing is gained by buckets.
  if (!plan.runtime.overlap_gradients) {
    for (size_t range = 0; range < ranges.size(); ++range)
      reductions.push_back(
          reduction_of(inputs, plan, layout, ranges, static_cast<int>(range), ranges[range].units));
    std::erase_if(reductions, [](const Reduction& reduction) { return reduction.bytes == 0; });
    return reductions;
  }
  // Buckets are planned for all units at once; the engine plans them for each rank's own units. Owner
  // sets do not cross the borders of stages, so the buckets are the same.
  std::vector<training::OwnerSet> sets;
  for (const OwnedRange& range : ranges) sets.push_back({range.workers, range.units});
  // The engine closes buckets by the size of their gradients. It has one degree; here the smallest degree
  // that the model knows stands for it.
  const auto unit_bytes = [&](int unit) {
    const int degree = unit == training::kTiedUnit ? inputs.model.tied_parameter_bytes.begin()->first
                                                   : inputs.model.unit(unit).parameter_bytes.begin()->first;
    return static_cast<size_t>(inputs.model.bytes_of(unit, degree)) * static_cast<size_t>(degree) *
           static_cast<size_t>(inputs.model.gradient_factor());
  };
  // One replica has nothing to reduce but a tied matrix.
  std::vector<int> units;
  for (const OwnedRange& range : ranges) std::ranges::copy(range.units.numbers(), std::back_inserter(units));
  const std::vector<training::Bucket> buckets =
      training::plan_buckets(sets, units, unit_bytes, static_cast<size_t>(plan.runtime.bucket_bytes));
  for (const training::Bucket& bucket : buckets)
    reductions.push_back(reduction_of(inputs, plan, layout, ranges, bucket.owner_set, bucket.units));
  // What a tied embedding leaves may be nothing.
  std::erase_if(reductions, [](const Reduction& reduction) { return reduction.bytes == 0; });
  return reductions;
}

}  // namespace hdt::plan
