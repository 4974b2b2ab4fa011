// step_messages.cc: what a worker of the step simulation does with messages between stages.
//
// The n-th send of a stage is the n-th receive of its neighbour. A send in the background starts its
// transfer at once and does not hold its stage up. A send that waits for its receiver starts when both
// ends have come, and holds its stage up until the message has arrived; so NCCL behaves for messages
// that do not fit its buffers.
#include <algorithm>

#include "training/plan/predict/step_simulation.h"

namespace hdt::plan {

StepSimulation::Message& StepSimulation::message(int sender, bool activation, int micro_batch) {
  return messages_.at({sender, activation})[micro_batch];
}

void StepSimulation::start_message(int sender, bool activation, int micro_batch, Message& sent) {
  const int receiver = activation ? sender + 1 : sender - 1;
  // A gradient is as large as the activation that it belongs to, the output of the earlier stage. It
  // goes the same way in the opposite direction.
  const auto bytes = static_cast<double>(workers_[activation ? sender : receiver].cost.output_bytes);
  const training::Position first = layout_.position_of(activation ? sender : receiver);
  const Hop& forward = equal_.activations[first.replica][first.stage];
  const int id = network_.start(TransferKind::kMessage, {activation ? forward : EqualReplicas::back(forward)},
                                bytes, bytes, inputs_.calibration.point_to_point);
  sent.started = now_;
  const SpanKind kind = activation ? SpanKind::kActivation : SpanKind::kGradient;
  communicate(sender, 1);
  communicate(receiver, 1);
  transfers_[id] = {&sent, -1, {sender, kind, micro_batch, now_, now_}};
}

bool StepSimulation::send(int index, bool activation, int micro_batch) {
  Worker& worker = workers_[index];
  Message& sent = message(index, activation, micro_batch);
  const Worker& owner = activation ? worker : workers_[index - 1];
  const auto& background = plan_.runtime.background_send_bytes;
  // The limit is for each device, and the message is that of all devices together.
  const bool waits_for_receiver = background && owner.cost.output_bytes > *background * worker.devices;
  // The first visit posts the message. A send that waits comes back here until the message has arrived.
  if (sent.posted < 0) {
    sent.posted = now_;
    if (!waits_for_receiver || sent.wanted >= 0) start_message(index, activation, micro_batch, sent);
    worker.waiting_since = now_;
    if (waits_for_receiver) return true;
  }
  if (waits_for_receiver && sent.arrived < 0) return false;
  account_wait(worker, prediction_.workers[index], sent.started);
  ++worker.next;
  return true;
}

bool StepSimulation::receive(int index, bool activation, int micro_batch) {
  Worker& worker = workers_[index];
  const int sender = activation ? index - 1 : index + 1;
  Message& received = message(sender, activation, micro_batch);
  // The first visit says that the receiver is there, which starts the transfer if the sender has waited
  // for that.
  if (received.wanted < 0) {
    received.wanted = now_;
    worker.waiting_since = now_;
    if (received.posted >= 0 && received.started < 0)
      start_message(sender, activation, micro_batch, received);
    return true;
  }
  if (received.arrived < 0) return false;
  account_wait(worker, prediction_.workers[index], received.started);
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
