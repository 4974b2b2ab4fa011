// completion_queues.h: a device's completion queues behind one completion channel. Connections get room for
// every request they may have under way, so that a queue cannot overflow; when the last one is full, another
// is made.
#pragma once

#include <functional>
#include <vector>

#include "transports/rdma/nic.h"

namespace hdt::transport::rdma {

class CompletionQueues {
 public:
  explicit CompletionQueues(Nic& nic) : nic_(nic) {}
  CompletionQueues(const CompletionQueues&) = delete;
  CompletionQueues& operator=(const CompletionQueues&) = delete;
  ~CompletionQueues();

  Status open();
  int fd() const { return channel_->fd; }
  // A queue with room for `entries` more; nullptr and errno if none can be had.
  ibv_cq* reserve(int entries);
  void give_back(ibv_cq* cq, int entries);

  // Hands what has completed to `handle`; returns how much that was. Bounded, so that other work has its
  // turn.
  size_t drain(const std::function<void(const ibv_wc&)>& handle);
  // Readable descriptor: takes the events off.
  void on_channel_event();
  // Asks for an event with the next completion. What completed before that has to be drained after it.
  void arm();
  bool armed() const { return armed_; }

 private:
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
