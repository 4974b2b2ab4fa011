// send_queue.cc: builds and posts send requests; see send_queue.h.
//
// The books: every request that is built enters requests_, and its id holds its sequence number. A
// completion takes requests off the front, up to and including its own. A request gives back what it used:
// its bytes of the window, or its slot. Slots are used in turn and SENDs complete in order, so the next
// slot is free whenever sends_under_way_ is below kSlots. Credits are given back by the peer, not by
// completions.
#include "transports/rdma/send_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hdt::transport::rdma {

namespace {
// The size of one RDMA WRITE. Long writes are cut, so that their progress can be seen, and memory that is
// deregistered in the meantime is soon left alone.
constexpr size_t kWriteBytes = size_t{256} << 10;
// Payload that is with the adapter: enough for the fastest NIC over several switches. The rest waits in
// the queue, where close() can still give it up.
constexpr size_t kMaxBytesUnderWay = size_t{2} << 20;
}  // namespace

// The queue pair must be destroyed before: the adapter may still read borrowed memory.
SendQueue::~SendQueue() {
  for (Frame& frame : frames_) {
    if (frame.borrowed != nullptr) nic_.verbs().deregister_memory(frame.borrowed);
  }
}

void SendQueue::open(ibv_qp* qp, uint32_t inline_bytes, std::byte* slots, uint32_t slots_key) {
  qp_ = qp;
  inline_bytes_ = inline_bytes;
  slots_ = slots;
  slots_key_ = slots_key;
}

void SendQueue::on_peer(const Hello& hello) { credits_ = hello.receive_slots; }

void SendQueue::push_message(std::span<const std::byte> message, uint64_t token) {
  Frame& frame = frames_.emplace_back();
  frame.token = token;
  frame.message.assign(message.begin(), message.end());
}

// `located` is found out when the write is posted, as the memory may be registered until then.
void SendQueue::push_write(const void* data, size_t bytes, uint32_t region, uint64_t address,
                           const Immediate& immediate, uint64_t token) {
  Frame& frame = frames_.emplace_back();
  frame.token = token;
  frame.data = static_cast<const std::byte*>(data);
  frame.bytes = bytes;
  frame.region = region;
  frame.address = address;
  frame.immediate = immediate;
  ++queued_writes_;
  queued_bytes_ += bytes;
}

// 1. Builds requests frame by frame, until one does not fit completely.
// 2. Adds a kCredits frame if half of the peer's receives are owed to it and no frame carried them.
// 3. Hands over everything with one call of post_send().
Status SendQueue::post(uint32_t& owed) {
  while (!stopped_ && begun_ < frames_.size()) {
    Frame& frame = frames_[begun_];
    if (frame.message.empty() && !frame.located) HDT_RETURN_IF_ERROR(locate(frame));
    const bool whole = frame.message.empty() ? build_write(frame, owed) : build_message(frame, owed);
    if (!whole) break;
    ++begun_;
  }
  // A peer that gets no frame from us still needs its credits back. This may use the first reserved credit.
  if (owed >= kReceiveSlots / 2 && credits_ > 1 && sends_under_way_ < kSlots && has_room(1)) {
    FrameHeader header;
    header.type = FrameType::kCredits;
    build_send(header, {}, owed, {});
  }
  return hand_over();
}

// May use the last credit.
bool SendQueue::post_goodbye(uint32_t& owed) {
  if (credits_ == 0 || sends_under_way_ == kSlots || !has_room(1)) return false;
  FrameHeader header;
  header.type = FrameType::kGoodbye;
  Request request;
  request.goodbye = true;
  build_send(header, {}, owed, request);
  return hand_over().is_ok();
}

// Memory that is registered is used by its key. Other memory is registered for this one write, and
// released in finish_frame(). Short payload is taken inline and needs no key.
Status SendQueue::locate(Frame& frame) {
  frame.located = true;
  if (frame.bytes <= inline_bytes_) return Status::ok();
  if (domain_.find_source(nic_.slot(), frame.data, frame.bytes, frame.source)) return Status::ok();
  void* const base = const_cast<std::byte*>(frame.data);
  frame.borrowed =
      nic_.verbs().register_memory(nic_.pd(), base, frame.bytes, reinterpret_cast<uintptr_t>(base), 0);
  if (frame.borrowed == nullptr) {
    return Status::from_errno(
        "cannot register " + std::to_string(frame.bytes) + " bytes to send with " + nic_.name(), errno);
  }
  frame.source = {reinterpret_cast<uintptr_t>(base), frame.borrowed->lkey};
  return Status::ok();
}

// Each piece takes a slot, a credit and a request, so a long message may be built over several calls;
// `posted` says how far it is.
bool SendQueue::build_message(Frame& frame, uint32_t& owed) {
  while (frame.posted < frame.message.size()) {
    if (!may_send()) return false;
    const size_t bytes = std::min(kPieceBytes, frame.message.size() - frame.posted);
    FrameHeader header;
    header.type = FrameType::kMessage;
    header.bytes = static_cast<uint32_t>(bytes);
    header.more = frame.posted + bytes < frame.message.size() ? 1 : 0;
    Request request;
    request.ends_frame = header.more == 0;
    build_send(header, std::span(frame.message).subspan(frame.posted, bytes), owed, request);
    frame.posted += bytes;
  }
  return true;
}

// The WRITEs of a write, then the SEND. Every WRITE but the last asks for a completion, which shows
// progress. If the SEND must wait for a credit or a slot, the last WRITE asks for one as well; otherwise
// that of the SEND stands for it. One WRITE is always allowed, whatever its length, so that the limit
// cannot stop everything.
bool SendQueue::build_write(Frame& frame, uint32_t& owed) {
  while (frame.posted < frame.bytes) {
    const size_t bytes = std::min(kWriteBytes, frame.bytes - frame.posted);
    // Two: the SEND that follows must find room.
    if (!has_room(2) || (bytes_under_way_ > 0 && bytes_under_way_ + bytes > kMaxBytesUnderWay)) return false;
    const bool last = frame.posted + bytes == frame.bytes;
    Request made;
    made.bytes = bytes;
    ibv_send_wr& request = next_request(made);
    request.opcode = IBV_WR_RDMA_WRITE;
    // The SEND's completion says that the WRITE before it has completed as well.
    if (!last || !may_send()) request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = frame.address + frame.posted;
    request.wr.rdma.rkey = frame.region;
    if (frame.bytes <= inline_bytes_) {
      request.send_flags |= IBV_SEND_INLINE;
      request.sg_list->addr = reinterpret_cast<uintptr_t>(frame.data);
    } else {
      request.sg_list->addr = frame.source.address + frame.posted;
      request.sg_list->lkey = frame.source.key;
    }
    request.sg_list->length = static_cast<uint32_t>(bytes);
    frame.posted += bytes;
    bytes_under_way_ += bytes;
  }
  if (!may_send()) return false;
  FrameHeader header;
  header.type = FrameType::kWritten;
  header.bytes = static_cast<uint32_t>(frame.bytes);
  header.region = frame.region;
  header.address = frame.address;
  Request request;
  request.ends_frame = true;
  build_send(header, frame.immediate, owed, request);
  return true;
}

// The frame is copied into a slot; the adapter reads it from there until the request completes, unless it
// takes it inline. Every SEND asks for a completion, because that frees its slot.
void SendQueue::build_send(FrameHeader header, std::span<const std::byte> body, uint32_t& owed,
                           Request made) {
  header.credits = static_cast<uint16_t>(owed);
  owed = 0;
  std::byte* const slot = slots_ + size_t{next_slot_} * kSlotBytes;
  next_slot_ = (next_slot_ + 1) % kSlots;
  std::memcpy(slot, &header, sizeof header);
  if (!body.empty()) std::memcpy(slot + sizeof header, body.data(), body.size());
  made.send = true;
  ibv_send_wr& request = next_request(made);
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list->addr = reinterpret_cast<uintptr_t>(slot);
  request.sg_list->length = static_cast<uint32_t>(sizeof header + body.size());
  request.sg_list->lkey = slots_key_;
  if (request.sg_list->length <= inline_bytes_) request.send_flags |= IBV_SEND_INLINE;
  ++sends_under_way_;
  --credits_;
}

// The request's sequence number is its place in requests_, counted from first_sequence_.
ibv_send_wr& SendQueue::next_request(Request made) {
  Batch& batch = *batch_;
  ibv_send_wr& request = batch.requests[batch.count];
  request = {};
  batch.pieces[batch.count] = {};
  request.sg_list = &batch.pieces[batch.count];
  request.num_sge = 1;
  request.wr_id = request_id(number_, false, first_sequence_ + static_cast<uint32_t>(requests_.size()));
  if (batch.count > 0) batch.requests[batch.count - 1].next = &request;
  ++batch.count;
  requests_.push_back(made);
  return request;
}

// After a failure the connection ends. The requests that the adapter has taken still complete, so they
// stay in requests_, and the others leave it.
Status SendQueue::hand_over() {
  if (batch_->count == 0) return Status::ok();
  ibv_send_wr* bad = nullptr;
  const int error = nic_.verbs().post_send(qp_, batch_->requests.data(), &bad);
  if (error != 0) {
    // Requests that the adapter did not take will never complete.
    const auto refused = batch_->count - static_cast<size_t>(bad - batch_->requests.data());
    for (size_t i = 0; i < refused; ++i) requests_.pop_back();
  }
  batch_->count = 0;
  if (error != 0) return Status::from_errno("the RDMA device " + nic_.name() + " refused to send", error);
  return Status::ok();
}

// The difference of the sequence numbers is taken modulo 2^31, as they wrap.
void SendQueue::on_completed(uint32_t sequence, std::vector<Sent>& sent) {
  const uint32_t count = ((sequence - first_sequence_) & kSequenceMask) + 1;
  if (count > requests_.size()) return;  // the adapter reports a request that does not exist
  for (uint32_t i = 0; i < count; ++i) {
    const Request request = requests_.front();
    requests_.pop_front();
    bytes_under_way_ -= request.bytes;
    if (request.send) --sends_under_way_;
    // A completed SEND was acknowledged by the peer's adapter.
    if (request.goodbye) goodbye_sent_ = true;
    if (request.ends_frame) finish_frame(sent);
  }
  first_sequence_ = (first_sequence_ + count) & kSequenceMask;
  ++completed_;
}

// The requests leave, but their frames do not: they are reported as failed by give_up().
void SendQueue::on_failed(uint32_t sequence) {
  stopped_ = true;
  const uint32_t count = ((sequence - first_sequence_) & kSequenceMask) + 1;
  if (count > requests_.size()) return;
  requests_.erase(requests_.begin(), requests_.begin() + count);
  first_sequence_ = (first_sequence_ + count) & kSequenceMask;
}

void SendQueue::give_up(std::vector<Sent>& sent) {
  while (!frames_.empty()) finish_frame(sent);
}

// begun_ counts from the front, so it goes down with the frame that leaves.
void SendQueue::finish_frame(std::vector<Sent>& sent) {
  Frame& frame = frames_.front();
  if (frame.borrowed != nullptr) nic_.verbs().deregister_memory(frame.borrowed);
  if (frame.message.empty()) {
    --queued_writes_;
    queued_bytes_ -= frame.bytes;
    sent.push_back({frame.token, frame.bytes});
  } else if (frame.token != 0) {
    sent.push_back({frame.token, frame.message.size()});
  }
  frames_.pop_front();
  if (begun_ > 0) --begun_;
}

}  // namespace hdt::transport::rdma
