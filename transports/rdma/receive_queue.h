// receive_queue.h: the receives that a connection has posted, one slot each. A slot is posted anew as soon
// as its frame was taken out of it; credits notify the peer of it. A receive is identified by its
// slot's number.
#pragma once

#include <cstddef>
#include <span>

#include "transports/rdma/frame.h"
#include "transports/rdma/nic.h"

namespace hdt::transport::rdma {

// Owned by an RdmaConnection, used on its thread. A receive is with the adapter, or has completed and is
// in the hands of the connection. under_way() counts both. For each receive that has completed the
// connection calls post_again() or retire(), once.
class ReceiveQueue {
 public:
  ReceiveQueue(Nic& nic, uint32_t number) : nic_(nic), number_(number) {}

  // `slots`: memory of kReceiveSlots slots, known to the adapter by `slots_key`. It must outlive the queue
  // pair.
  void open(ibv_qp* qp, std::byte* slots, uint32_t slots_key);
  // Posts all slots; to be called before the peer may send. kSystem if the adapter refuses.
  Status post_all();
  // The frame of a receive that has completed. Empty if the adapter reports impossible numbers, which the
  // caller refuses as a malformed frame.
  std::span<const std::byte> frame(uint32_t slot, uint32_t bytes) const;
  // The frame is not needed any more: the slot is posted anew, and one more credit is owed.
  Status post_again(uint32_t slot);
  // It has completed, and is not posted again: the connection is ending.
  void retire() { --under_way_; }

  // Receives that were posted and neither retired nor handled.
  uint32_t under_way() const { return under_way_; }
  uint32_t owed = 0;  // credits that the peer has not been sent; SendQueue sets it to 0 when it sends them

 private:
  // Gives the slot to the adapter.
  Status post(uint32_t slot);

  Nic& nic_;
  const uint32_t number_;
  ibv_qp* qp_ = nullptr;
  std::byte* slots_ = nullptr;
  uint32_t slots_key_ = 0;
  uint32_t under_way_ = 0;
};

}  // namespace hdt::transport::rdma
