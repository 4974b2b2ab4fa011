// step_gradients.cc: when gradients are complete, reduced and used in the step simulation.
//
// A gradient is the sum over all micro-batches, so it is complete during the last backward of its stage.
// That backward goes from the last unit to the first, so the gradients of the last units are complete
// first, and are reduced while the rest is computed.
#include <algorithm>

#include "training/plan/predict/step_simulation.h"

namespace hdt::plan {

// All schedules finish the micro-batches of a chunk in order, so the last one completes its gradients.
bool StepSimulation::completes_gradients(int index, const training::PipelineStep& step) const {
  return plan_.runtime.overlap_gradients &&
         step.micro_batch + 1 == plan_.replicas[layout_.position_of(index).replica].micro_batches;
}

// Notes when each reduction of the chunk's units gets this worker's part: during the computation that begins
// now. It goes from the last unit to the first and takes `seconds` of each. The part of a reduction is
// complete when its first unit is done; what is left then is the work of the units before.
void StepSimulation::gradients_during(Place at, double UnitCost::*seconds) {
  const int index = at.worker;
  Worker& worker = workers_[index];
  const std::vector<UnitCost>& units = worker.chunks[static_cast<size_t>(at.chunk)].units;
  training::Position position = layout_.position_of(index);
  position.chunk = at.chunk;
  const training::UnitRange owned = layout_.units_of(position);
  for (size_t i = 0; i < reductions_.size(); ++i) {
    // The gradients of a tied matrix are complete with all others: at the end of the first chunk's backward,
    // which is the last one. Another reduction has units of one chunk: the next units are on another stage.
    const bool tied = reductions_[i].units.first == training::kTiedUnit;
    if (tied ? at.chunk != 0 : !owned.contains(reductions_[i].units.first)) continue;
    if (std::ranges::find(reductions_[i].workers, index) == reductions_[i].workers.end()) continue;
    double left = 0;
    for (int unit = owned.first; unit < reductions_[i].units.first; ++unit)
      left += units[static_cast<size_t>(unit - owned.first)].*seconds;
    worker.gradients.emplace_back(left, static_cast<int>(i));
  }
  std::ranges::sort(worker.gradients);
}

// All gradients of the worker are complete at once.
void StepSimulation::gradients_complete(int index) {
  for (size_t i = 0; i < reductions_.size(); ++i) {
    if (std::ranges::find(reductions_[i].workers, index) != reductions_[i].workers.end())
      gradient_ready(static_cast<int>(i));
  }
}

// Clamped, so that rounding puts it neither into the past nor behind the end of the computation.
double StepSimulation::next_gradient(const Worker& worker) const {
  if (worker.gradients.empty()) return worker.until;
  const double when = worker.paced + (worker.work - worker.gradients.back().first) / worker.pace;
  return std::clamp(when, now_, std::max(now_, worker.until));
}

// A reduction by the cost model is a timed transfer, all others move the ring's bytes. Both share ports
// with everything else that is under way.
void StepSimulation::gradient_ready(int index) {
  if (--running_[index].missing > 0) return;
  running_[index].started = now_;
  start_of_owners(index, false);
}

void StepSimulation::start_of_owners(int index, bool gather) {
  const Reduction& reduction = reductions_[index];
  const auto& seconds = gather ? reduction.gather_seconds_alone : reduction.seconds_alone;
  const double bytes = gather ? reduction.gather_bytes : reduction.bytes;
  const double over_each_hop = gather ? reduction.gather_bytes_over_each_hop : reduction.bytes_over_each_hop;
  const int id = seconds ? network_.start_timed(reduction.hops, *seconds)
                         : network_.start(TransferKind::kAllreduce, reduction.hops, over_each_hop, bytes,
                                          inputs_.calibration.allreduce);
  for (const int worker : reduction.workers) communicate(worker, 1);
  const SpanKind kind = gather ? SpanKind::kGather : SpanKind::kReduction;
  transfers_[id] = {nullptr, index, gather, {0, kind, index, now_, now_}};
}

bool StepSimulation::finish_reductions(int index) {
  Worker& worker = workers_[index];
  if (worker.open_reductions > 0) return false;
  // While any of the worker's reductions runs, waiting is exposed communication. The rest of the wait is
  // for other owners. The intervals are merged in the order of their starts: `covered` is the end of
  // what has been counted.
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
  // The sum of the norm begins when the last worker has come.
  const bool all_are_there = ++at_norm_ == static_cast<int>(workers_.size());
  if (all_are_there) {
    norm_ends_ = now_ + equal_.norm_seconds;
    due_.push({norm_ends_, kNorm});
  }
  return true;
}

// The engine sums the norm of the gradients over all workers before any of them updates. Without
// libhdt's reductions there is no such sum, and a worker updates as soon as its own reductions have
// ended.
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
  double update = 0;
  for (size_t chunk = 0; chunk < worker.chunks.size(); ++chunk) {
    training::Position position = layout_.position_of(index);
    position.chunk = static_cast<int>(chunk);
    const Stage& stage = plan_.replicas[position.replica].stages[position.stage];
    update += equal_.shares.update_seconds(stage, layout_.units_of(position).first, worker.chunks[chunk]);
  }
  compute({index, 0}, SpanKind::kUpdate, 0, update);
  worker.phase = Phase::kUpdating;
  return true;
}

}  // namespace hdt::plan
