// queue_pair.h: an RC queue pair with the memory of its slots, taken through its states: INIT, RTR, RTS with
// what rdma_cm knows of the path, and at its end ERR, where the adapter hands everything back. Never reset
// while in use.
#pragma once

#include <cstdlib>
#include <memory>

#include "transports/rdma/completion_queues.h"
#include "transports/rdma/frame.h"

namespace hdt::transport::rdma {

class QueuePair {
 public:
  QueuePair(Nic& nic, CompletionQueues& queues) : nic_(nic), queues_(queues) {}
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair() { destroy(); }

  Status create();
  // Receives may be posted after `init`, sends after `connect`.
  Status init(rdma_cm_id* id);
  Status connect(rdma_cm_id* id);
  // The peer may write to registered memory from now on, and not before.
  Status allow_writes();
  void to_error();
  // After it the adapter touches no memory of this connection.
  void destroy();

  ibv_qp* get() const { return qp_; }
  uint32_t number() const { return qp_ == nullptr ? 0 : qp_->qp_num; }
  uint32_t inline_bytes() const { return inline_bytes_; }
  uint32_t slots_key() const { return registration_->lkey; }
  std::byte* receive_slots() const { return slots_.get(); }
  std::byte* send_slots() const { return slots_.get() + size_t{kReceiveSlots} * kSlotBytes; }
  // Whether the address that the path begins at is still where it was.
  bool gid_moved() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  Status change(rdma_cm_id* id, ibv_qp_state state, const char* name);

  Nic& nic_;
  CompletionQueues& queues_;
  std::unique_ptr<std::byte, Free> slots_;
  ibv_mr* registration_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  uint32_t inline_bytes_ = 0;
  uint8_t port_ = 1;
  int gid_index_ = -1;
  ibv_gid gid_{};
};

}  // namespace hdt::transport::rdma
