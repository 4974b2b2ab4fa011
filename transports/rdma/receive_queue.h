// receive_queue.h: the receives that a connection has posted, one slot each. A slot is posted anew as soon as
// its frame has been taken out of it; the peer is told by credits.
#pragma once

#include <cstddef>
#include <span>

#include "transports/rdma/frame.h"
#include "transports/rdma/nic.h"

namespace hdt::transport::rdma {

class ReceiveQueue {
 public:
  ReceiveQueue(Nic& nic, uint32_t number) : nic_(nic), number_(number) {}

  // `slots` is memory of kReceiveSlots slots, known to the adapter by `slots_key`.
  void open(ibv_qp* qp, std::byte* slots, uint32_t slots_key);
  Status post_all();
  // A receive has completed: the frame in it. Malformed numbers of a device give an empty one.
  std::span<const std::byte> frame(uint32_t slot, uint32_t bytes) const;
  Status post_again(uint32_t slot);
  // Completed and not posted again.
  void retire() { --under_way_; }

  uint32_t under_way() const { return under_way_; }
  uint32_t owed = 0;  // credits that the peer has not been told of

 private:
  Status post(uint32_t slot);

  Nic& nic_;
  const uint32_t number_;
  ibv_qp* qp_ = nullptr;
  std::byte* slots_ = nullptr;
  uint32_t slots_key_ = 0;
  uint32_t under_way_ = 0;
};

}  // namespace hdt::transport::rdma
