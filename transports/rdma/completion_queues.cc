// completion_queues.cc: reserves, drains and arms completion queues; see completion_queues.h.
#include "transports/rdma/completion_queues.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace hdt::transport::rdma {

namespace {
constexpr int kQueueEntries = 8191;  // 512 KiB of completions
// Completions taken by one call, and by one drain().
constexpr int kPollEntries = 32;
constexpr size_t kDrainBudget = 512;
}  // namespace

Status CompletionQueues::open() {
  channel_ = nic_.verbs().create_completion_channel(nic_.context());
  if (channel_ != nullptr) return Status::ok();
  return Status::from_errno("cannot make a completion channel of " + nic_.name(), errno);
}

CompletionQueues::~CompletionQueues() {
  for (const Queue& queue : queues_) nic_.verbs().destroy_cq(queue.cq);
  if (channel_ != nullptr) nic_.verbs().destroy_completion_channel(channel_);
}

// A queue that is made while the others are armed is armed as well, or its completions would wake nobody.
ibv_cq* CompletionQueues::reserve(int entries) {
  for (Queue& queue : queues_) {
    if (queue.entries - queue.reserved < entries) continue;
    queue.reserved += entries;
    return queue.cq;
  }
  const int size = std::min(kQueueEntries, nic_.limits().completion_entries);
  if (size < entries) {
    errno = ENOSPC;
    return nullptr;
  }
  ibv_cq* const cq = nic_.verbs().create_cq(nic_.context(), size, channel_);
  if (cq == nullptr) return nullptr;
  queues_.push_back({cq, size, entries});
  if (armed_) nic_.verbs().request_notification(cq);
  return cq;
}

// A queue that is empty is kept for later connections.
void CompletionQueues::give_back(ibv_cq* cq, int entries) {
  for (Queue& queue : queues_) {
    if (queue.cq == cq) queue.reserved -= entries;
  }
}

// Each queue is polled until it is empty or the budget is used up; what is left comes with the next
// drain(). By index, because handling a completion may add a queue.
size_t CompletionQueues::drain(const std::function<void(const ibv_wc&)>& handle) {
  std::array<ibv_wc, kPollEntries> completions;
  size_t handled = 0;
  for (size_t i = 0; i < queues_.size(); ++i) {
    int count = 0;
    while (handled < kDrainBudget &&
           (count = nic_.verbs().poll_cq(queues_[i].cq, kPollEntries, completions.data())) > 0) {
      for (int k = 0; k < count; ++k) handle(completions[static_cast<size_t>(k)]);
      handled += static_cast<size_t>(count);
    }
  }
  return handled;
}

// An event consumes the notification of one queue only, but armed_ stands for all: the next arm() asks all
// of them again, which does no harm.
void CompletionQueues::on_channel_event() {
  while (nic_.verbs().next_completion_event(channel_)) armed_ = false;
}

void CompletionQueues::arm() {
  for (const Queue& queue : queues_) nic_.verbs().request_notification(queue.cq);
  armed_ = true;
}

}  // namespace hdt::transport::rdma
