// step_messages.cc: what a worker of the step simulation does with messages between stages.
//
// Where stages have several chunks, the neighbour of the last stage is the first one, with its next chunk.
// The n-th send of a stage to a neighbour is the n-th receive there. A send in the background starts its
// transfer at once and does not hold its stage up. A send that waits for its receiver starts when both ends
// have come, and holds its stage up until the message has arrived; so NCCL behaves for messages that do not
// fit its buffers. In an exchange in lockstep the receive is posted with the send before it, so two
// neighbours that both send first do not wait for ever.
#include <algorithm>

#include "training/plan/predict/step_simulation.h"

namespace hdt::plan {

// A plan's workers are numbered replica by replica, so those of a replica are neighbours.
StepSimulation::Place StepSimulation::neighbour(Place place, int distance) const {
  const training::Position position = layout_.position_of(place.worker);
  const int stages = layout_.replica(position.replica).stages();
  const int virtual_stage = place.chunk * stages + position.stage + distance;
  return {place.worker - position.stage + virtual_stage % stages, virtual_stage / stages};
}

int StepSimulation::receiver_of(const Span& message) const {
  return neighbour({message.worker, message.chunk}, message.kind == SpanKind::kActivation ? 1 : -1).worker;
}

StepSimulation::Message& StepSimulation::message(Place sender, bool activation, int micro_batch) {
  const auto replica = static_cast<size_t>(layout_.position_of(sender.worker).replica);
  const auto micro_batches = static_cast<size_t>(plan_.replicas[replica].micro_batches);
  std::vector<Message>& sent = messages_.at({sender.worker, activation});
  return sent[static_cast<size_t>(sender.chunk) * micro_batches + static_cast<size_t>(micro_batch)];
}

void StepSimulation::start_message(Place sender, bool activation, int micro_batch, Message& sent) {
  const Place receiver = neighbour(sender, activation ? 1 : -1);
  // A gradient is as large as the activation that it belongs to, the output of the earlier virtual stage. It
  // goes the same way in the opposite direction.
  const Place earlier = activation ? sender : receiver;
  const auto bytes =
      static_cast<double>(workers_[earlier.worker].chunks[static_cast<size_t>(earlier.chunk)].output_bytes);
  const training::Position first = layout_.position_of(earlier.worker);
  const Hop& forward = equal_.activations[first.replica][first.stage];
  const int id = network_.start(TransferKind::kMessage, {activation ? forward : EqualReplicas::back(forward)},
                                bytes, bytes, inputs_.calibration.point_to_point);
  sent.started = now_;
  const SpanKind kind = activation ? SpanKind::kActivation : SpanKind::kGradient;
  communicate(sender.worker, 1);
  communicate(receiver.worker, 1);
  transfers_[id] = {&sent, -1, false, {sender.worker, kind, micro_batch, now_, now_, sender.chunk}};
}

bool StepSimulation::send(Place from, bool activation, int micro_batch) {
  Worker& worker = workers_[from.worker];
  Message& sent = message(from, activation, micro_batch);
  const Place earlier = activation ? from : neighbour(from, -1);
  const StageCost& owner = workers_[earlier.worker].chunks[static_cast<size_t>(earlier.chunk)];
  const auto& background = plan_.runtime.background_send_bytes;
  // The limit is for each device, and the message is that of all devices together.
  const bool waits_for_receiver =
      plan_.runtime.lockstep_exchange || (background && owner.output_bytes > *background * worker.devices);
  // The first visit posts the message. A send that waits comes back here until the message has arrived.
  if (sent.posted < 0) {
    sent.posted = now_;
    if (!waits_for_receiver || sent.wanted >= 0) start_message(from, activation, micro_batch, sent);
    if (plan_.runtime.lockstep_exchange) post_exchanged(from, activation);
    worker.waiting_since = now_;
    if (waits_for_receiver) return true;
  }
  if (waits_for_receiver && sent.arrived < 0) return false;
  account_wait(worker, prediction_.workers[from.worker], sent.started);
  ++worker.next;
  return true;
}

// The step behind the send, if it receives from the node that is sent to.
void StepSimulation::post_exchanged(Place from, bool activation) {
  const Worker& worker = workers_[from.worker];
  if (worker.next + 1 >= worker.steps.size()) return;
  const training::PipelineStep& step = worker.steps[worker.next + 1];
  const auto expected =
      activation ? training::PipelineAction::kReceiveGradient : training::PipelineAction::kReceiveActivation;
  const int distance = activation ? 1 : -1;
  if (step.action != expected) return;
  const Place sender = neighbour({from.worker, step.chunk}, distance);
  if (sender.worker == neighbour(from, distance).worker) want(sender, !activation, step.micro_batch);
}

// The transfer starts if the sender has waited for that.
void StepSimulation::want(Place sender, bool activation, int micro_batch) {
  Message& received = message(sender, activation, micro_batch);
  if (received.wanted >= 0) return;
  received.wanted = now_;
  if (received.posted >= 0 && received.started < 0) start_message(sender, activation, micro_batch, received);
}

bool StepSimulation::receive(Place at, bool activation, int micro_batch) {
  Worker& worker = workers_[at.worker];
  const Place sender = neighbour(at, activation ? -1 : 1);
  const Message& received = message(sender, activation, micro_batch);
  // The first visit says that the receiver is there, unless a send of the same exchange has said so.
  if (worker.waiting_since < 0) {
    worker.waiting_since = now_;
    want(sender, activation, micro_batch);
    return true;
  }
  if (received.arrived < 0) return false;
  account_wait(worker, prediction_.workers[at.worker], received.started);
  ++worker.next;
  return true;
}

// Until the transfer began, the worker waited for the other side; since then, for the transfer.
void StepSimulation::account_wait(Worker& worker, WorkerTime& time, double transfer_started) {
  const double on_the_way = std::min(now_ - worker.waiting_since, now_ - transfer_started);
  time.exposed_pipeline += on_the_way;
  time.bubble += now_ - worker.waiting_since - on_the_way;
  worker.waiting_since = -1;
}

}  // namespace hdt::plan
