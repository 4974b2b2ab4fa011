// completion_queues.h: a device's completion queues behind one completion channel. A connection reserves
// room for every request that it may have under way, so a queue can never overflow; when no queue has
// enough room left, another one is made.
#pragma once

#include <functional>
#include <vector>

#include "transports/rdma/nic.h"

namespace hdt::transport::rdma {

// Owned by a device, used on its thread. Sleeping goes as follows: arm() asks for an event, then the owner
// drains once more, because a completion that came before arm() makes no event. From then on the channel's
// descriptor becomes readable with the next completion, and on_channel_event() ends the armed state.
class CompletionQueues {
 public:
  explicit CompletionQueues(Nic& nic) : nic_(nic) {}
  CompletionQueues(const CompletionQueues&) = delete;
  CompletionQueues& operator=(const CompletionQueues&) = delete;
  ~CompletionQueues();

  // To be called once, before anything else. kSystem if the channel cannot be made.
  Status open();
  // The descriptor of the channel.
  int fd() const { return channel_->fd; }
  // A queue with room for `entries` more. nullptr, with errno set, if there is none and no more can be
  // made; ENOSPC: the adapter's queues are too small.
  ibv_cq* reserve(int entries);
  // The queue pair that used them is destroyed.
  void give_back(ibv_cq* cq, int entries);

  // Calls `handle` for each completion, and returns how many there were: about 512 at most, so that other
  // work has its turn.
  size_t drain(const std::function<void(const ibv_wc&)>& handle);
  // The descriptor is readable: takes all events off it.
  void on_channel_event();
  // Asks for an event with the next completion of any queue.
  void arm();
  // True from arm() to on_channel_event().
  bool armed() const { return armed_; }

 private:
  // A queue, its size, and how much of it is reserved.
  struct Queue {
    ibv_cq* cq;
    int entries;
    int reserved;
  };
  Nic& nic_;
  ibv_comp_channel* channel_ = nullptr;
  std::vector<Queue> queues_;
  bool armed_ = false;
};

}  // namespace hdt::transport::rdma
