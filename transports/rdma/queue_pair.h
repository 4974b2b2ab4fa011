// queue_pair.h: a queue pair of type RC (reliable connection) with the memory of its slots. It goes
// through the states of the InfiniBand specification: INIT (receives may be posted), RTR and RTS (it
// receives, and sends), and at its end ERR, in which the adapter hands back every request with an error.
// rdma_cm gives the attributes of the path. A queue pair is never reset and used again.
#pragma once

#include <cstdlib>
#include <memory>

#include "transports/rdma/completion_queues.h"
#include "transports/rdma/frame.h"

namespace hdt::transport::rdma {

// Owned by an RdmaConnection, used on its thread. It owns its slots: kReceiveSlots for receives and
// SendQueue::kSlots for SENDs in one registered piece of memory. destroy() releases everything; it may be
// called at any time, and twice.
class QueuePair {
 public:
  QueuePair(Nic& nic, CompletionQueues& queues) : nic_(nic), queues_(queues) {}
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair() { destroy(); }

  // Gets the memory, room in a completion queue and the queue pair. kSystem if the adapter or the system
  // refuses. After a failure destroy() cleans up.
  Status create();
  // To INIT: receives may be posted.
  Status init(rdma_cm_id* id);
  // To RTR and RTS: sends may be posted.
  Status connect(rdma_cm_id* id);
  // From now on, and not before, the peer may write to the memory whose keys it has. Called when the peer
  // is admitted.
  Status allow_writes();
  // To ERR: what is posted comes back with IBV_WC_WR_FLUSH_ERR. No effect without a queue pair.
  void to_error();
  // After it the adapter touches no memory of this connection, even if requests had not come back.
  void destroy();

  ibv_qp* get() const { return qp_; }
  // Names the queue pair to the peer and in events; 0: there is none.
  uint32_t number() const { return qp_ == nullptr ? 0 : qp_->qp_num; }
  // The largest SEND or WRITE whose bytes the adapter takes when it is posted; 0: it takes none.
  uint32_t inline_bytes() const { return inline_bytes_; }
  // The local key of both kinds of slots.
  uint32_t slots_key() const { return registration_->lkey; }
  std::byte* receive_slots() const { return slots_.get(); }
  std::byte* send_slots() const { return slots_.get() + size_t{kReceiveSlots} * kSlotBytes; }
  // True if the GID that the path begins at, taken when it was connected, is not at its index any more.
  bool gid_moved() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  // To `state` with the attributes that rdma_cm gives for it. `name` is for the error.
  Status change(rdma_cm_id* id, ibv_qp_state state, const char* name);

  Nic& nic_;
  CompletionQueues& queues_;
  std::unique_ptr<std::byte, Free> slots_;
  ibv_mr* registration_ = nullptr;
  ibv_cq* cq_ = nullptr;  // holds kEntries of it reserved
  ibv_qp* qp_ = nullptr;
  uint32_t inline_bytes_ = 0;
  uint8_t port_ = 1;
  int gid_index_ = -1;  // -1: the path has no GID
  ibv_gid gid_{};
};

}  // namespace hdt::transport::rdma
