// reductions.cc: from owner sets to rings.
#include "training/plan/reductions.h"

#include <algorithm>

namespace hdt::plan {
namespace {

const Stage& stage_of(const Plan& plan, training::Position position) {
  return plan.replicas[position.replica].stages[position.stage];
}

Reduction reduction_of(const PredictionInputs& inputs, const Plan& plan, const training::Layout& layout,
                       const std::vector<int>& workers, training::UnitRange units) {
  Reduction reduction;
  reduction.workers = workers;
  reduction.units = units;
  std::vector<int> nodes;
  for (const int worker : workers) {
    const Stage& stage = stage_of(plan, layout.position_of(worker));
    double bytes = 0;
    for (int unit = units.first; unit < units.end; ++unit)
      bytes += static_cast<double>(inputs.model.unit(unit).parameter_bytes.at(stage.tensor_parallel)) *
               stage.tensor_parallel;
    // Owners of other degrees keep more or fewer copies of what is not cut; the ring carries the most.
    reduction.bytes = std::max(reduction.bytes, bytes);
    nodes.push_back(inputs.cluster.index_of(stage.node));
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    reduction.hops.push_back({nodes[i], nodes[(i + 1) % nodes.size()]});
  return reduction;
}

}  // namespace

double Reduction::bytes_over_each_hop() const {
  const auto owners = static_cast<double>(workers.size());
  return 2 * (owners - 1) / owners * bytes;
}

std::vector<Reduction> plan_reductions(const PredictionInputs& inputs, const Plan& plan,
                                       const training::Layout& layout) {
  std::vector<Reduction> reductions;
  if (layout.num_replicas() < 2) return reductions;
  const std::vector<training::OwnerSet> sets = training::owner_sets(layout);
  if (!plan.runtime.overlap_gradients) {
    for (const training::OwnerSet& set : sets)
      reductions.push_back(reduction_of(inputs, plan, layout, set.ranks, set.units));
    return reductions;
  }
  const auto unit_bytes = [&](int unit) {
    const auto& [degree, bytes] = *inputs.model.unit(unit).parameter_bytes.begin();
    return static_cast<size_t>(bytes) * static_cast<size_t>(degree);
  };
  const std::vector<training::Bucket> buckets = training::plan_buckets(
      sets, {0, layout.num_units()}, unit_bytes, static_cast<size_t>(plan.runtime.bucket_bytes));
  for (const training::Bucket& bucket : buckets)
    reductions.push_back(reduction_of(inputs, plan, layout, sets[bucket.owner_set].ranks, bucket.units));
  return reductions;
}

}  // namespace hdt::plan
