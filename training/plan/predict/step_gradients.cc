// step_gradients.cc: when gradients are complete, reduced and used in the step simulation.
#include <algorithm>

#include "training/plan/predict/step_simulation.h"

namespace hdt::plan {

// All schedules finish micro-batches in order: the last one completes the gradients.
bool StepSimulation::completes_gradients(int index, const training::PipelineStep& step) const {
  return plan_.runtime.overlap_gradients &&
         step.micro_batch + 1 == plan_.replicas[layout_.position_of(index).replica].micro_batches;
}

// Says when each reduction has this worker's part: during the computation that begins now and goes from the
// last unit to the first, with so many `seconds` for each.
void StepSimulation::gradients_during(int index, double UnitCost::*seconds) {
  Worker& worker = workers_[index];
  const training::UnitRange owned = layout_.units_of(layout_.position_of(index));
  for (size_t i = 0; i < reductions_.size(); ++i) {
    if (std::ranges::find(reductions_[i].workers, index) == reductions_[i].workers.end()) continue;
    double left = 0;
    for (int unit = owned.first; unit < reductions_[i].units.first; ++unit)
      left += worker.cost.units[unit - owned.first].*seconds;
    worker.gradients.emplace_back(left, static_cast<int>(i));
  }
  std::ranges::sort(worker.gradients);
}

void StepSimulation::gradients_complete(int index) {
  for (size_t i = 0; i < reductions_.size(); ++i) {
    if (std::ranges::find(reductions_[i].workers, index) != reductions_[i].workers.end())
      gradient_ready(static_cast<int>(i));
  }
}

double StepSimulation::next_gradient(const Worker& worker) const {
  if (worker.gradients.empty()) return worker.until;
  const double when = worker.paced + (worker.work - worker.gradients.back().first) / worker.pace;
  return std::clamp(when, now_, std::max(now_, worker.until));
}

void StepSimulation::gradient_ready(int index) {
  if (--running_[index].missing > 0) return;
  running_[index].started = now_;
  const Reduction& reduction = reductions_[index];
  const int id = reduction.seconds_alone ? network_.start_timed(reduction.hops, *reduction.seconds_alone)
                                         : network_.start(TransferKind::kAllreduce, reduction.hops,
                                                          reduction.bytes_over_each_hop(), reduction.bytes,
                                                          inputs_.calibration.allreduce);
  for (const int worker : reduction.workers) communicate(worker, 1);
  transfers_[id] = {nullptr, index, {0, SpanKind::kReduction, index, now_, now_}};
}

bool StepSimulation::finish_reductions(int index) {
  Worker& worker = workers_[index];
  if (worker.open_reductions > 0) return false;
  // Waiting while any of the worker's reductions runs is exposed communication; the rest is waiting for
  // owners.
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
  worker.waiting_since = now_;
  worker.phase = Phase::kNorm;
  const bool all_are_there = ++at_norm_ == static_cast<int>(workers_.size());
  if (all_are_there) {
    norm_ends_ = now_ + equal_.norm_seconds;
    due_.push({norm_ends_, kNorm});
  }
  return true;
}

// The engine sums the norm of the gradients over all workers before any of them updates.
bool StepSimulation::finish_norm(int index) {
  Worker& worker = workers_[index];
  if (plan_.runtime.reduction == ReductionKind::kHdt) {
    if (norm_ends_ < 0 || norm_ends_ > now_) return false;
    WorkerTime& time = prediction_.workers[index];
    const double waited = now_ - worker.waiting_since;
    time.exposed_reduction += std::min(waited, equal_.norm_seconds);
    time.bubble += waited - std::min(waited, equal_.norm_seconds);
  }
  worker.waiting_since = -1;
  compute(index, SpanKind::kUpdate, 0, worker.cost.update);
  worker.phase = Phase::kUpdating;
  return true;
}

}  // namespace hdt::plan
