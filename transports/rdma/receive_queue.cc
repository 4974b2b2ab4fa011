// receive_queue.cc: posts receives; see receive_queue.h.
#include "transports/rdma/receive_queue.h"

#include "transports/rdma/send_queue.h"

namespace hdt::transport::rdma {

void ReceiveQueue::open(ibv_qp* qp, std::byte* slots, uint32_t slots_key) {
  qp_ = qp;
  slots_ = slots;
  slots_key_ = slots_key;
}

// After a failure some slots are posted; the connection ends, which destroys the queue pair.
Status ReceiveQueue::post_all() {
  for (uint32_t slot = 0; slot < kReceiveSlots; ++slot) HDT_RETURN_IF_ERROR(post(slot));
  return Status::ok();
}

std::span<const std::byte> ReceiveQueue::frame(uint32_t slot, uint32_t bytes) const {
  if (slot >= kReceiveSlots || bytes > kSlotBytes) return {};
  return {slots_ + size_t{slot} * kSlotBytes, bytes};
}

// It is counted out before it is posted: if posting fails, it is not under way any more.
Status ReceiveQueue::post_again(uint32_t slot) {
  --under_way_;
  HDT_RETURN_IF_ERROR(post(slot));
  ++owed;
  return Status::ok();
}

// The id names the connection and the slot (request_id()).
Status ReceiveQueue::post(uint32_t slot) {
  ibv_sge place{};
  place.addr = reinterpret_cast<uintptr_t>(slots_ + size_t{slot} * kSlotBytes);
  place.length = kSlotBytes;
  place.lkey = slots_key_;
  ibv_recv_wr request{};
  request.wr_id = request_id(number_, true, slot);
  request.sg_list = &place;
  request.num_sge = 1;
  if (const int error = nic_.verbs().post_receive(qp_, &request); error != 0) {
    return Status::from_errno("the RDMA device " + nic_.name() + " refused to receive", error);
  }
  ++under_way_;
  return Status::ok();
}

}  // namespace hdt::transport::rdma
