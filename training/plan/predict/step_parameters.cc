// step_parameters.cc: sharded optimizer states in the step simulation: the parameters that other owners have
// updated come under the first forward.
//
// All gathers of a range of units have one group, so they go one after the other, first units first. A
// forward waits for the parameters of each unit when it comes to it (MicroBatch::need() in
// training/engine/compute.h).
#include <algorithm>

#include "training/plan/predict/step_simulation.h"

namespace hdt::plan {

void StepSimulation::start_gathers() {
  gathered_.assign(reductions_.size(), false);
  for (size_t i = 0; i < reductions_.size(); ++i) {
    const Reduction& reduction = reductions_[i];
    if (!reduction.sharded) continue;
    const auto range = static_cast<size_t>(reduction.range);
    if (gathers_left_.size() <= range) gathers_left_.resize(range + 1);
    gathers_left_[range].push_back(static_cast<int>(i));
    for (const int index : reduction.workers) {
      Worker& worker = workers_[index];
      ++worker.open_gathers;
      training::Position position = layout_.position_of(index);
      worker.gathers.resize(worker.chunks.size());
      if (reduction.units.first == training::kTiedUnit) worker.tied_gather = static_cast<int>(i);
      for (; position.chunk < static_cast<int>(worker.chunks.size()); ++position.chunk) {
        const training::UnitRange owned = layout_.units_of(position);
        std::vector<int>& gathers = worker.gathers[static_cast<size_t>(position.chunk)];
        gathers.resize(static_cast<size_t>(owned.size()), -1);
        for (int unit = std::max(owned.first, reduction.units.first);
             unit < std::min(owned.end, reduction.units.end); ++unit)
          gathers[static_cast<size_t>(unit - owned.first)] = static_cast<int>(i);
      }
    }
  }
  for (std::vector<int>& left : gathers_left_) {
    std::ranges::sort(left, std::greater(), [this](int i) { return reductions_[i].units.first; });
    if (left.empty()) continue;
    const int first = left.back();
    left.pop_back();
    start_of_owners(first, true);
  }
}

void StepSimulation::gather_ended(int reduction) {
  gathered_[static_cast<size_t>(reduction)] = true;
  std::vector<int>& left = gathers_left_[static_cast<size_t>(reductions_[reduction].range)];
  if (left.empty()) return;
  const int next = left.back();
  left.pop_back();
  start_of_owners(next, true);
}

// Where nothing overlaps with computation, all of a worker's parameters come before its first forward.
bool StepSimulation::has_parameters(const Worker& worker, int chunk) const {
  if (!plan_.runtime.overlap_gradients) return worker.open_gathers == 0;
  if (worker.tied_gather >= 0 && !gathered_[static_cast<size_t>(worker.tied_gather)]) return false;
  const int gather = worker.gathers[static_cast<size_t>(chunk)][worker.computed_units];
  return gather < 0 || gathered_[static_cast<size_t>(gather)];
}

bool StepSimulation::first_forward(Place at) {
  Worker& worker = workers_[at.worker];
  const std::vector<UnitCost>& units = worker.chunks[static_cast<size_t>(at.chunk)].units;
  if (!has_parameters(worker, at.chunk)) {
    if (worker.waiting_since < 0) worker.waiting_since = now_;
    return false;
  }
  // The gathers are under way from the begin of the step on, so all of the wait is for them.
  if (worker.waiting_since >= 0)
    prediction_.workers[at.worker].exposed_reduction += now_ - worker.waiting_since;
  worker.waiting_since = -1;
  double seconds = 0;
  while (worker.computed_units < units.size() && has_parameters(worker, at.chunk))
    seconds += units[worker.computed_units++].forward;
  const bool last = worker.computed_units == units.size();
  compute(at, SpanKind::kForward, 0, seconds,
          last ? worker.chunks[static_cast<size_t>(at.chunk)].forward_sums : TensorSums{});
  if (last) {
    worker.computed_units = 0;
    ++worker.next;
  }
  return true;
}

}  // namespace hdt::plan
