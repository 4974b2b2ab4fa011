// queue_pair.cc: makes a queue pair and takes it through its states; see queue_pair.h.
#include "transports/rdma/queue_pair.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "transports/rdma/send_queue.h"

namespace hdt::transport::rdma {

namespace {
// A write's SEND (88 bytes) fits.
constexpr uint32_t kInlineBytes = 128;
// All requests and receives may complete before anybody drains the queue.
constexpr int kEntries = static_cast<int>(SendQueue::kRequests + kReceiveSlots);
// The slots of receives come first, then those of SENDs.
constexpr size_t kSlotMemory = (size_t{kReceiveSlots} + SendQueue::kSlots) * kSlotBytes;
// A packet that is not acknowledged is sent again after 4.096 us * 2^16 (0.27 s), seven times: a peer that
// has gone ends the connection after about two seconds. The link above notices a silent path sooner.
constexpr uint8_t kAckTimeout = 16;
constexpr uint8_t kRetries = 7;
// Credits keep the peer's receives posted, so "receiver not ready" is an error of the protocol; a few
// retries show soon that it is one.
constexpr uint8_t kRnrRetries = 3;
constexpr uint8_t kRnrTimer = 12;  // the code for 0.64 ms
// The attributes that ibv_modify_qp() knows. rdma_cm of some kernels sets bits beyond them.
constexpr int kStandardBits = (1 << 21) - 1;
}  // namespace

// destroy() releases whatever was made before a failure.
Status QueuePair::create() {
  Verbs& verbs = nic_.verbs();
  slots_.reset(
      static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(::sysconf(_SC_PAGESIZE)), kSlotMemory)));
  if (slots_ == nullptr) return Status::from_errno("cannot get memory for a connection", ENOMEM);
  std::memset(slots_.get(), 0, kSlotMemory);
  registration_ = verbs.register_memory(nic_.pd(), slots_.get(), kSlotMemory,
                                        reinterpret_cast<uintptr_t>(slots_.get()), IBV_ACCESS_LOCAL_WRITE);
  if (registration_ == nullptr) {
    return Status::from_errno("cannot register a connection's messages with " + nic_.name(), errno);
  }
  cq_ = queues_.reserve(kEntries);
  if (cq_ == nullptr) return Status::from_errno("cannot make a completion queue of " + nic_.name(), errno);
  // One piece of memory for each request; both directions share one completion queue.
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.cap = {SendQueue::kRequests, kReceiveSlots, 1, 1, kInlineBytes};
  qp_ = verbs.create_qp(nic_.pd(), attributes);
  inline_bytes_ = kInlineBytes;
  if (qp_ == nullptr && errno == EINVAL) {  // some adapters take fewer bytes inline, or none
    attributes.cap = {SendQueue::kRequests, kReceiveSlots, 1, 1, 0};
    qp_ = verbs.create_qp(nic_.pd(), attributes);
    inline_bytes_ = 0;
  }
  if (qp_ == nullptr) return Status::from_errno("cannot make a queue pair of " + nic_.name(), errno);
  return Status::ok();
}

Status QueuePair::init(rdma_cm_id* id) { return change(id, IBV_QPS_INIT, "INIT"); }

Status QueuePair::connect(rdma_cm_id* id) {
  HDT_RETURN_IF_ERROR(change(id, IBV_QPS_RTR, "RTR"));
  return change(id, IBV_QPS_RTS, "RTS");
}

// At each step rdma_cm fills in what it knows, and this adds what is ours: no remote access at INIT, and
// the timers. At RTR the GID of the path is read, for gid_moved().
Status QueuePair::change(rdma_cm_id* id, ibv_qp_state state, const char* name) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  int error = nic_.verbs().qp_attributes(id, attributes, mask);
  if (error == 0) {
    if (state == IBV_QPS_INIT) {
      attributes.qp_access_flags = 0;  // until allow_writes()
      port_ = attributes.port_num;
    }
    // The peer is asked to wait for kRnrTimer if a receive is missing.
    if (state == IBV_QPS_RTR) {
      attributes.min_rnr_timer = kRnrTimer;
      if (attributes.ah_attr.is_global != 0) gid_index_ = attributes.ah_attr.grh.sgid_index;
      if (gid_index_ >= 0) nic_.verbs().query_gid(nic_.context(), port_, gid_index_, gid_);
    }
    if (state == IBV_QPS_RTS) {
      attributes.timeout = kAckTimeout;
      attributes.retry_cnt = kRetries;
      attributes.rnr_retry = kRnrRetries;
    }
    error = nic_.verbs().modify_qp(qp_, attributes, mask & kStandardBits);
  }
  if (error == 0) return Status::ok();
  return Status::from_errno("cannot take a queue pair of " + nic_.name() + " to " + name, error);
}

// Changes the access flags of a queue pair that is in RTS already.
Status QueuePair::allow_writes() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error = nic_.verbs().modify_qp(qp_, attributes, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return Status::ok();
  return Status::from_errno("cannot let the peer write through a queue pair of " + nic_.name(), error);
}

// A failure is ignored: destroy() ends everything in any case.
void QueuePair::to_error() {
  if (qp_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  nic_.verbs().modify_qp(qp_, attributes, IBV_QP_STATE);
}

// The queue pair goes first: the adapter uses the completion queue and the slots until it is destroyed.
void QueuePair::destroy() {
  if (qp_ != nullptr) nic_.verbs().destroy_qp(qp_);
  qp_ = nullptr;
  if (cq_ != nullptr) queues_.give_back(cq_, kEntries);
  cq_ = nullptr;
  if (registration_ != nullptr) nic_.verbs().deregister_memory(registration_);
  registration_ = nullptr;
  slots_.reset();
}

// A GID that cannot be read any more counts as moved.
bool QueuePair::gid_moved() const {
  if (gid_index_ < 0) return false;
  ibv_gid now{};
  return nic_.verbs().query_gid(nic_.context(), port_, gid_index_, now) != 0 ||
         std::memcmp(&now, &gid_, sizeof now) != 0;
}

}  // namespace hdt::transport::rdma
