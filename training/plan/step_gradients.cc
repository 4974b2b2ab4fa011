// step_gradients.cc: when gradients are complete, reduced and used in the step simulation.
#include <algorithm>

#include "training/plan/step_simulation.h"

namespace hdt::plan {

// Says when each reduction has this worker's part. Overlapped, that is during the last backward, which begins at
// `start` and goes from the last unit to the first; else it is `start`.
void StepSimulation::gradients_during(int index, double start) {
  const Worker& worker = workers_[index];
  const training::UnitRange owned = layout_.units_of(layout_.position_of(index));
  for (size_t i = 0; i < reductions_.size(); ++i) {
    if (std::ranges::find(reductions_[i].workers, index) == reductions_[i].workers.end()) continue;
    double when = start;
    if (plan_.runtime.overlap_gradients) {
      for (int unit = reductions_[i].units.first; unit < owned.end; ++unit)
        when += worker.cost.units[unit - owned.first].backward;
    }
    ready_.push({when, static_cast<int>(i)});
  }
}

void StepSimulation::gradient_ready(int index) {
  if (--running_[index].missing > 0) return;
  running_[index].started = now_;
  const Reduction& reduction = reductions_[index];
  const int id = network_.start(TransferKind::kAllreduce, reduction.hops, reduction.bytes_over_each_hop(),
                                reduction.bytes, inputs_.calibration.allreduce);
  transfers_[id] = {nullptr, index, {0, SpanKind::kReduction, index, now_, now_}};
}

bool StepSimulation::finish_reductions(int index) {
  Worker& worker = workers_[index];
  if (worker.open_reductions > 0) return false;
  // Waiting while any of the worker's reductions runs is exposed communication; the rest is waiting for owners.
  double busy = 0;
  double covered = worker.waiting_since;
  std::vector<std::pair<double, double>> times;
  for (size_t i = 0; i < reductions_.size(); ++i) {
    if (std::ranges::find(reductions_[i].workers, index) != reductions_[i].workers.end())
      times.emplace_back(running_[i].started, running_[i].ended);
  }
  std::ranges::sort(times);
  for (const auto& [started, ended] : times) {
    busy += std::max(0.0, ended - std::max(covered, started));
    covered = std::max(covered, ended);
  }
  prediction_.workers[index].exposed_reduction += busy;
  prediction_.workers[index].bubble += now_ - worker.waiting_since - busy;
  worker.waiting_since = -1;
  compute(index, SpanKind::kUpdate, 0, worker.cost.update);
  worker.phase = Phase::kUpdating;
  return true;
}

}  // namespace hdt::plan
