// send_queue.h: what a connection has to send, in order, and how much of it the adapter has taken. A message
// is cut into SENDs of one slot; a write becomes RDMA WRITEs and then a SEND with its immediate, which the
// adapter delivers in this order. A SEND needs a credit (a receive that the peer has posted), so that the
// peer's adapter never lacks one.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transports/rdma/domain.h"
#include "transports/rdma/frame.h"

namespace hdt::transport::rdma {

class SendQueue {
 public:
  // Requests that the adapter may hold.
  static constexpr uint32_t kRequests = 128;
  static constexpr uint32_t kSlots = 64;
  // Two credits are kept: one to return credits to a peer that waits for them, one for the goodbye.
  static constexpr uint32_t kReservedCredits = 2;

  struct Sent {
    uint64_t token = 0;
    size_t bytes = 0;
  };

  // `number` makes the requests' ids; `slots` is memory of kSlots slots, known to the adapter by `slots_key`.
  SendQueue(Domain& domain, Nic& nic, uint32_t number) : domain_(domain), nic_(nic), number_(number) {}
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue();
  void open(ibv_qp* qp, uint32_t inline_bytes, std::byte* slots, uint32_t slots_key);
  void on_peer(const Hello& hello);

  void push_message(std::span<const std::byte> message, uint64_t token);
  void push_write(const void* data, size_t bytes, uint32_t region, uint64_t address,
                  const Immediate& immediate, uint64_t token);
  // Gives the adapter what it can take. `owed`: credits to return with the next SEND; zero afterwards if one
  // left.
  Status post(uint32_t& owed);
  // Posts nothing but the frames of this kind; false if there was no room.
  bool post_goodbye(uint32_t& owed);

  void on_credits(uint32_t credits) { credits_ += credits; }
  // A request (all up to it, that is) has completed; what it finished is appended to `sent`.
  void on_completed(uint32_t sequence, std::vector<Sent>& sent);
  // A request has failed, and those behind it will: what they were to finish is given up later.
  void on_failed(uint32_t sequence);
  // Everything not reported yet; no request may be under way.
  void give_up(std::vector<Sent>& sent);
  // Nothing that is not begun will be sent any more.
  void stop() { stopped_ = true; }

  size_t requests_under_way() const { return requests_.size(); }
  size_t queued_writes() const { return queued_writes_; }
  size_t queued_bytes() const { return queued_bytes_; }
  bool goodbye_sent() const { return goodbye_sent_; }
  uint64_t completed() const { return completed_; }

 private:
  struct Frame {
    uint64_t token = 0;
    std::vector<std::byte> message;  // empty: a write
    const std::byte* data = nullptr;
    size_t bytes = 0;
    uint32_t region = 0;
    uint64_t address = 0;
    Immediate immediate{};
    size_t posted = 0;           // bytes given to the adapter
    ibv_mr* borrowed = nullptr;  // registration of `data` for this write only
    Domain::Source source;
    bool located = false;
  };
  struct Request {
    size_t bytes = 0;
    bool send = false;
    bool ends_frame = false;
    bool goodbye = false;
  };
  // Work requests that are made and not handed over yet.
  struct Batch {
    std::array<ibv_send_wr, kRequests> requests;
    std::array<ibv_sge, kRequests> pieces;
    size_t count = 0;
  };

  bool has_room(uint32_t requests) const { return requests_.size() + requests <= kRequests; }
  bool may_send() const { return sends_under_way_ < kSlots && credits_ > kReservedCredits && has_room(1); }
  Status locate(Frame& frame);
  bool build_message(Frame& frame, uint32_t& owed);
  bool build_write(Frame& frame, uint32_t& owed);
  void build_send(FrameHeader header, std::span<const std::byte> body, uint32_t& owed, Request request);
  ibv_send_wr& next_request(Request request);
  Status hand_over();
  void finish_frame(std::vector<Sent>& sent);

  Domain& domain_;
  Nic& nic_;
  const uint32_t number_;
  ibv_qp* qp_ = nullptr;
  uint32_t inline_bytes_ = 0;
  std::byte* slots_ = nullptr;
  uint32_t slots_key_ = 0;

  std::deque<Frame> frames_;
  size_t begun_ = 0;  // frames at the front that are given to the adapter wholly
  std::deque<Request> requests_;
  uint32_t first_sequence_ = 0;
  uint32_t next_slot_ = 0;
  uint32_t sends_under_way_ = 0;
  size_t bytes_under_way_ = 0;
  uint32_t credits_ = 0;
  size_t queued_writes_ = 0;
  size_t queued_bytes_ = 0;
  uint64_t completed_ = 0;
  bool stopped_ = false;
  bool goodbye_sent_ = false;
  std::unique_ptr<Batch> batch_ = std::make_unique<Batch>();
};

// Ids of work requests: whose, of which kind, which one.
inline constexpr uint64_t kReceiveBit = uint64_t{1} << 31;
inline constexpr uint32_t kSequenceMask = 0x7fffffff;
inline uint64_t request_id(uint32_t number, bool receive, uint32_t sequence) {
  return (uint64_t{number} << 32) | (receive ? kReceiveBit : 0) | (sequence & kSequenceMask);
}

}  // namespace hdt::transport::rdma
