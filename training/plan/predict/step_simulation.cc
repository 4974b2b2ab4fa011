// step_simulation.cc: the event loop, and what a worker computes. Messages are in step_messages.cc,
// gradients in step_gradients.cc.
//
// Computation has a pace: while a worker takes part in a transfer, its work goes on more slowly. A
// computation is therefore kept as work that is left, and each change of pace computes its end anew.
#include "training/plan/predict/step_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "training/engine/schedules.h"

namespace hdt::plan {

using training::PipelineAction;
using training::PipelineStep;

StepSimulation::StepSimulation(const PredictionInputs& inputs, const EqualReplicas& equal)
    : inputs_(inputs),
      equal_(equal),
      plan_(equal.plan),
      layout_(equal.plan.layout()),
      network_(inputs.cluster, inputs.profile),
      reductions_(equal.reductions) {
  for (int index = 0; index < layout_.world_size(); ++index) {
    const training::Position position = layout_.position_of(index);
    const Replica& replica = plan_.replicas[position.replica];
    const Stage& stage = replica.stages[position.stage];
    const int chunks = replica.chunks();
    Worker worker;
    for (int chunk = 0; chunk < chunks; ++chunk)
      worker.chunks.push_back(stage_cost(inputs, plan_, layout_, {position.replica, position.stage, chunk}));
    worker.devices = stage.tensor_parallel;
    const Node& node = inputs.cluster.nodes[inputs.cluster.index_of(stage.node)];
    worker.slowdown = inputs.profile.slowdown_of(node.device);
    worker.steps = steps_of(plan_.runtime.schedule, layout_.replica(position.replica).stages(),
                            position.stage, replica.micro_batches, chunks);
    // The vectors get their final size here, since TransferUse points into them.
    for (const bool activation : {true, false})
      messages_[{index, activation}].resize(static_cast<size_t>(chunks) *
                                            static_cast<size_t>(replica.micro_batches));
    workers_.push_back(std::move(worker));
  }
  for (const Reduction& reduction : reductions_) {
    // Only the owners that are played are waited for: the others are equal to one of them, and ready at
    // the same time.
    running_.push_back({static_cast<int>(reduction.workers.size()), -1, -1});
    for (const int worker : reduction.workers) ++workers_[worker].open_reductions;
  }
  prediction_.workers.resize(workers_.size());
  touched_.resize(workers_.size());
  std::iota(touched_.begin(), touched_.end(), 0);
}

Status StepSimulation::run() {
  start_gathers();
  while (true) {
    // Workers act on each other only through events, so only those that an event has touched can go on.
    // They are sorted so that the result does not depend on the order of events.
    std::ranges::sort(touched_);
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const int worker : touched_) {
      while (advance(worker)) continue;
    }
    touched_.clear();
    if (done_ == workers_.size()) break;
    // Nobody can go on and nothing is under way, so this is a deadlock.
    if (transfers_.empty() && due_.empty())
      return {Code::kConfig,
              fmt::format("schedule {}: its stages would wait for each other for ever when sends of this "
                          "size wait for their receivers",
                          schedule_name(plan_.runtime.schedule))};
    next_event();
  }
  // A worker that was done early waits for the end of the step.
  prediction_.step_seconds = now_;
  for (size_t i = 0; i < workers_.size(); ++i) prediction_.workers[i].bubble += now_ - workers_[i].until;
  return Status::ok();
}

void StepSimulation::next_event() {
  // An entry of due_ may be overdue by a rounding error; time never goes back.
  double next = now_ + network_.next_end();
  if (!due_.empty()) next = std::min(next, std::max(now_, due_.top().when));
  const std::vector<int> ended = network_.advance(next - now_);
  now_ = next;
  // 1. Transfers that have ended.
  for (const int id : ended) {
    const auto found = transfers_.find(id);
    TransferUse& use = found->second;
    use.span.end = now_;
    // Both ends of a message may go on now, and neither communicates by it any longer.
    if (use.message) {
      use.message->arrived = now_;
      for (const int worker : {use.span.worker, receiver_of(use.span)}) {
        communicate(worker, -1);
        touched_.push_back(worker);
      }
      prediction_.spans.push_back(use.span);
    } else if (use.tensor_sums) {
      workers_[use.span.worker].summing = false;
      close_computation(use.span.worker);
    } else {
      if (!use.gather) running_[use.reduction].ended = now_;
      for (const int worker : reductions_[use.reduction].workers) {
        --(use.gather ? workers_[worker].open_gathers : workers_[worker].open_reductions);
        communicate(worker, -1);
        touched_.push_back(worker);
        use.span.worker = worker;
        prediction_.spans.push_back(use.span);
      }
      if (use.gather) gather_ended(use.reduction);
    }
    transfers_.erase(found);
  }
  // Several things may be due at the same time, and all of them happen before any worker goes on.
  // 2. Computations and gradients that are due.
  while (!due_.empty() && due_.top().when <= now_) {
    const int worker = due_.top().worker;
    due_.pop();
    if (worker == kNorm) {
      // The sum of the norm is there for all workers.
      touched_.resize(workers_.size());
      std::iota(touched_.begin(), touched_.end(), 0);
    } else {
      happens(worker);
    }
  }
}

// An entry of due_ is obsolete if the worker's pace has changed since it was made. Then neither an end
// nor a gradient is due now, and another entry is in the queue for the new time.
void StepSimulation::happens(int index) {
  Worker& worker = workers_[index];
  if (!worker.busy) return;
  const bool done = worker.until <= now_;
  bool moved = done;
  // If the computation has ended, all its gradients are complete, whatever rounding says.
  while (!worker.gradients.empty() && (done || next_gradient(worker) <= now_)) {
    const int reduction = worker.gradients.back().second;
    worker.gradients.pop_back();
    gradient_ready(reduction);
    moved = true;
  }
  // If a gradient was complete, the next one needs an entry of its own.
  if (done)
    end_computation(index);
  else if (moved)
    due_.push({next_gradient(worker), index});
}

// The phases follow each other in the order of Phase. A change into a phase sets waiting_since where the
// phase waits.
bool StepSimulation::advance(int index) {
  Worker& worker = workers_[index];
  if (worker.busy || worker.summing) return false;
  switch (worker.phase) {
    case Phase::kSteps:
      if (worker.next < worker.steps.size()) return take_step(index, worker.steps[worker.next]);
      // Without overlap all gradients of the worker are reduced from here on.
      if (!plan_.runtime.overlap_gradients) gradients_complete(index);
      worker.waiting_since = now_;
      worker.phase = Phase::kReducing;
      return true;
    case Phase::kReducing:
      return finish_reductions(index);
    case Phase::kNorm:
      return finish_norm(index);
    case Phase::kUpdating:
      worker.phase = Phase::kDone;
      ++done_;
      return true;
    case Phase::kDone:
      return false;
  }
  return false;
}

// Sends and receives may have to wait, and then come back here. Computations begin at once.
bool StepSimulation::take_step(int index, const PipelineStep& step) {
  Worker& worker = workers_[index];
  const Place place{index, step.chunk};
  const StageCost& cost = worker.chunks[static_cast<size_t>(step.chunk)];
  switch (step.action) {
    case PipelineAction::kReceiveActivation:
      return receive(place, true, step.micro_batch);
    case PipelineAction::kReceiveGradient:
      return receive(place, false, step.micro_batch);
    case PipelineAction::kSendActivation:
      return send(place, true, step.micro_batch);
    case PipelineAction::kSendGradient:
      return send(place, false, step.micro_batch);
    case PipelineAction::kForward:
      if (step.micro_batch == 0 && !worker.gathers.empty()) return first_forward(place);
      compute(place, SpanKind::kForward, step.micro_batch, cost.forward, cost.forward_sums);
      break;
    case PipelineAction::kBackward:
      if (completes_gradients(index, step)) gradients_during(place, &UnitCost::backward);
      compute(place, SpanKind::kBackward, step.micro_batch, cost.backward, cost.backward_sums);
      break;
    case PipelineAction::kInputGradient:
      // The backward's first part is what its second part leaves.
      compute(place, SpanKind::kInputGradient, step.micro_batch, cost.backward - cost.weight_gradient,
              cost.backward_sums);
      break;
    case PipelineAction::kWeightGradient:
      if (completes_gradients(index, step)) gradients_during(place, &UnitCost::weight_gradient);
      compute(place, SpanKind::kWeightGradient, step.micro_batch, cost.weight_gradient);
      break;
  }
  // Only computations come here. They have begun, and `busy` holds the worker until they end.
  ++worker.next;
  return true;
}

// The entry is for full pace. If the worker communicates, set_pace() adds a later one.
void StepSimulation::compute(Place at, SpanKind kind, int micro_batch, double seconds,
                             const TensorSums& sums) {
  const int index = at.worker;
  Worker& worker = workers_[index];
  worker.busy = true;
  worker.sums = sums;
  worker.work = seconds;
  worker.paced = now_;
  worker.pace = 1;
  worker.until = now_ + seconds;
  worker.span = prediction_.spans.size();
  prediction_.spans.push_back({index, kind, micro_batch, now_, worker.until, at.chunk});
  due_.push({next_gradient(worker), index});
  set_pace(index);
}

// Between two sums a layer computes. All sums of a chunk are one transfer behind its computation: they take
// the same time, and the events of a step stay few.
void StepSimulation::end_computation(int index) {
  Worker& worker = workers_[index];
  worker.busy = false;
  if (worker.sums.count == 0) return close_computation(index);
  const training::Position position = layout_.position_of(index);
  const double devices = worker.devices;
  const int id =
      network_.start(TransferKind::kAllreduce, {equal_.tensor_sums[position.replica][position.stage]},
                     2 * (devices - 1) / devices * worker.sums.bytes, worker.sums.bytes / worker.sums.count,
                     inputs_.calibration.allreduce, worker.sums.count);
  worker.summing = true;
  TransferUse use;
  use.span.worker = index;
  use.tensor_sums = true;
  transfers_[id] = use;
}

// The whole length counts as computation, even the part that is caused by a slower pace.
void StepSimulation::close_computation(int index) {
  touched_.push_back(index);
  Span& span = prediction_.spans[workers_[index].span];
  span.end = now_;
  WorkerTime& time = prediction_.workers[index];
  (span.kind == SpanKind::kUpdate ? time.optimizer : time.compute) += now_ - span.start;
}

void StepSimulation::communicate(int index, int change) {
  workers_[index].communicating += change;
  set_pace(index);
}

// First settles the work done at the old pace.
void StepSimulation::set_pace(int index) {
  Worker& worker = workers_[index];
  const double pace = worker.communicating > 0 ? 1 / worker.slowdown : 1;
  if (!worker.busy || pace == worker.pace) return;
  worker.work -= (now_ - worker.paced) * worker.pace;
  worker.paced = now_;
  worker.pace = pace;
  worker.until = now_ + worker.work / pace;
  due_.push({next_gradient(worker), index});
}

}  // namespace hdt::plan
