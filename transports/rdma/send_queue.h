// send_queue.h: what a connection has to send, in order, and how much of it the adapter has taken. A
// message is cut into SENDs of one slot each. A write becomes RDMA WRITEs and then a SEND with its
// immediate; the adapter executes them in this order. A write of 600 KiB, for example:
//
//   WRITE 256 KiB, WRITE 256 KiB, WRITE 88 KiB, SEND (kWritten, immediate)
//
// A SEND needs a credit, which stands for a receive that the peer has posted, so the peer's adapter never
// lacks a receive. The last two credits are not used for data: one is for a kCredits frame, one for the
// goodbye. A frame that uses the first of them returns at least half of the peer's credits, so two ends
// can never both wait for credits.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transports/rdma/domain.h"
#include "transports/rdma/frame.h"

namespace hdt::transport::rdma {

// Owned by an RdmaConnection, used on its thread. A frame goes through these states: queued in frames_;
// begun (some of it is with the adapter); with the adapter completely (the first begun_ frames); finished,
// when its last request has completed, and then reported.
//
// Requests complete in order. The last WRITE of a write usually asks for no completion: that of the SEND
// stands for it.
class SendQueue {
 public:
  // Requests that the adapter may hold.
  static constexpr uint32_t kRequests = 128;
  // SENDs among them; each uses a slot until it has completed.
  static constexpr uint32_t kSlots = 64;
  // Credits that data does not use: one to return credits to a peer that waits for them, one for the
  // goodbye.
  static constexpr uint32_t kReservedCredits = 2;

  // A frame that is finished, to be reported as kSent. Messages with token 0 are not reported and never
  // appear here.
  struct Sent {
    uint64_t token = 0;
    size_t bytes = 0;
  };

  // `number`: of the connection; it is part of every request's id.
  SendQueue(Domain& domain, Nic& nic, uint32_t number) : domain_(domain), nic_(nic), number_(number) {}
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue();
  // `slots`: memory of kSlots slots, known to the adapter by `slots_key`.
  void open(ibv_qp* qp, uint32_t inline_bytes, std::byte* slots, uint32_t slots_key);
  // The peer's hello has arrived: its receives are the first credits.
  void on_peer(const Hello& hello);

  // Queues a message, which is copied.
  void push_message(std::span<const std::byte> message, uint64_t token);
  // Queues a write. `region` and `address`: the remote key and address, as the peer's adapter knows them.
  // The memory at `data` must stay as it is until the write is reported.
  void push_write(const void* data, size_t bytes, uint32_t region, uint64_t address,
                  const Immediate& immediate, uint64_t token);
  // Gives the adapter what it can take now, in one call. `owed`: credits to return with the next SEND; 0
  // afterwards if one was sent. kSystem if the adapter refuses a request or memory.
  Status post(uint32_t& owed);
  // Posts the goodbye. False if there is no room for it now.
  bool post_goodbye(uint32_t& owed);

  // The peer has returned credits.
  void on_credits(uint32_t credits) { credits_ += credits; }
  // The request with this sequence number has completed, and with it all before it. Appends to `sent` what
  // they finished.
  void on_completed(uint32_t sequence, std::vector<Sent>& sent);
  // A request has failed, and those behind it will fail as well. The frames that they were to finish stay in
  // the queue until give_up().
  void on_failed(uint32_t sequence);
  // Appends everything that was not reported. No request may be with the adapter.
  void give_up(std::vector<Sent>& sent);
  // From now on only the goodbye is posted; what the adapter has goes on.
  void stop() { stopped_ = true; }

  // Requests that are with the adapter.
  size_t requests_under_way() const { return requests_.size(); }
  // Writes that are not finished, and the sum of their payload in bytes.
  size_t queued_writes() const { return queued_writes_; }
  size_t queued_bytes() const { return queued_bytes_; }
  // The goodbye has completed: the peer's adapter has it.
  bool goodbye_sent() const { return goodbye_sent_; }
  // Completions so far; a measure of progress.
  uint64_t completed() const { return completed_; }

 private:
  // A message or a write.
  struct Frame {
    uint64_t token = 0;
    std::vector<std::byte> message;  // empty: a write
    const std::byte* data = nullptr;
    size_t bytes = 0;
    uint32_t region = 0;
    uint64_t address = 0;
    Immediate immediate{};
    size_t posted = 0;           // bytes of payload or message that were given to the adapter
    ibv_mr* borrowed = nullptr;  // registration of `data` for this write only; null: none
    Domain::Source source;       // where the adapter finds `data`; valid if located and not inline
    bool located = false;        // locate() was called
  };
  // A request that is with the adapter, and what its completion means.
  struct Request {
    size_t bytes = 0;         // of a WRITE; 0: it is a SEND
    bool send = false;        // it holds a slot
    bool ends_frame = false;  // the last one of its frame
    bool goodbye = false;
  };
  // Requests that are built and not handed over yet, as a linked list for post_send().
  struct Batch {
    std::array<ibv_send_wr, kRequests> requests;
    std::array<ibv_sge, kRequests> pieces;
    size_t count = 0;
  };

  bool has_room(uint32_t requests) const { return requests_.size() + requests <= kRequests; }
  // True if a SEND with data may be posted: a slot, a credit and a request are free.
  bool may_send() const { return sends_under_way_ < kSlots && credits_ > kReservedCredits && has_room(1); }
  // Finds the memory of a write for the adapter; registers it if it is not.
  Status locate(Frame& frame);
  // Build as many requests of a frame as there is room for. True: all of the frame is built.
  bool build_message(Frame& frame, uint32_t& owed);
  bool build_write(Frame& frame, uint32_t& owed);
  // Builds a SEND with all credits that are owed. The caller has checked that there is room.
  void build_send(FrameHeader header, std::span<const std::byte> body, uint32_t& owed, Request request);
  // Appends an empty request to the batch and to requests_.
  ibv_send_wr& next_request(Request request);
  // Gives the batch to the adapter.
  Status hand_over();
  // The front frame is finished: releases its memory, and appends it to `sent`.
  void finish_frame(std::vector<Sent>& sent);

  Domain& domain_;
  Nic& nic_;
  const uint32_t number_;
  ibv_qp* qp_ = nullptr;
  uint32_t inline_bytes_ = 0;
  std::byte* slots_ = nullptr;
  uint32_t slots_key_ = 0;

  std::deque<Frame> frames_;      // not finished, in order
  size_t begun_ = 0;              // frames at the front that the adapter has completely
  std::deque<Request> requests_;  // with the adapter, or in the batch, in order
  uint32_t first_sequence_ = 0;   // of the front of requests_; counts modulo 2^31
  uint32_t next_slot_ = 0;        // slots are used in turn
  uint32_t sends_under_way_ = 0;
  size_t bytes_under_way_ = 0;  // of WRITEs that are with the adapter
  uint32_t credits_ = 0;        // receives of the peer that nothing was sent for
  size_t queued_writes_ = 0;
  size_t queued_bytes_ = 0;
  uint64_t completed_ = 0;
  bool stopped_ = false;
  bool goodbye_sent_ = false;
  std::unique_ptr<Batch> batch_ = std::make_unique<Batch>();
};

// The id of a work request: bits 32 to 63 are the number of the connection, bit 31 is set for receives,
// and the rest is the sequence number of a send request or the slot of a receive.
inline constexpr uint64_t kReceiveBit = uint64_t{1} << 31;
inline constexpr uint32_t kSequenceMask = 0x7fffffff;
inline uint64_t request_id(uint32_t number, bool receive, uint32_t sequence) {
  return (uint64_t{number} << 32) | (receive ? kReceiveBit : 0) | (sequence & kSequenceMask);
}

}  // namespace hdt::transport::rdma
