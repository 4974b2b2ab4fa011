// connection.cc: what an open connection does, and how it ends; see connection.h. How it begins is in
// handshake.cc.
//
// Every end goes through drain(): the queue pair goes to ERR, the adapter hands back all requests in
// order, and finish() reports the end when it has the last one, or after kDrainMs. close() sends a goodbye
// before that.
#include "transports/rdma/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hdt::transport::rdma {

namespace {
// The write window, as for tcp: enough from poll to poll, but little enough that a slow rail does not hold
// much back. An adapter needs more bytes than a socket, because nothing else buffers what it has not sent.
constexpr size_t kMaxQueuedWrites = 64;
constexpr size_t kMaxQueuedWriteBytes = size_t{4} << 20;
// How long a close waits for the goodbye to leave, and an end for the adapter to hand back its requests.
constexpr int64_t kGoodbyeMs = 1000;
constexpr int64_t kDrainMs = 1000;
}  // namespace

// Makes nothing on the adapter; that begins in open_pair().
RdmaConnection::RdmaConnection(DeviceState& device)
    : device_(device),
      verbs_(device.nic.verbs()),
      number_(device.next_number++),
      pair_(device.nic, device.queues),
      send_(*device.domain, device.nic, number_),
      receive_(device.nic, number_) {
  hello_.nic_slot = device.nic.slot();
}

// Frees a connection in any phase. The order matters: the queue pair is destroyed before the id that its
// path belongs to.
RdmaConnection::~RdmaConnection() {
  device_.loop.clear_deadline(this);
  device_.by_number.erase(number_);
  if (unflushed_) std::erase(device_.unflushed, this);
  std::erase(device_.holding, this);
  pair_.to_error();
  if (id_ != nullptr && pair_.get() != nullptr) verbs_.disconnect(id_);
  pair_.destroy();
  if (id_ != nullptr) verbs_.destroy_id(id_);
}

// From here on the adapter places writes of this peer, without asking: which of them are accepted is
// checked when their kWritten arrives. Frames that were held back follow with the next poll().
Status RdmaConnection::admit(const PeerName& peer) {
  if (phase_ != Phase::kOpen || granted_ != nullptr)
    return {Code::kInvalidUsage, "only an open connection can be admitted, once"};
  HDT_RETURN_IF_ERROR(pair_.allow_writes());
  leave();
  granted_ = device_.domain->grants_of(peer);
  report(Completion::Kind::kReady);
  return Status::ok();
}

// The message is copied into the queue, and later into slots.
Status RdmaConnection::send(std::span<const std::byte> message, uint64_t token) {
  if (message.empty() || message.size() > kMaxMessageBytes) {
    return {Code::kInvalidArgument, "a message has 1 to " + std::to_string(kMaxMessageBytes) +
                                        " bytes, not " + std::to_string(message.size())};
  }
  if (phase_ != Phase::kOpen) return {Code::kInvalidUsage, "the connection is not open"};
  if (granted_ == nullptr && message.size() > kMaxStrangerMessageBytes)
    return {Code::kInvalidUsage, "a peer that is not admitted is sent short messages only"};
  send_.push_message(message, token);
  queued_something();
  return Status::ok();
}

Status RdmaConnection::write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
                             const Immediate& immediate, uint64_t token) {
  if (bytes > kMaxWriteBytes || (bytes > 0 && data == nullptr)) {
    return {Code::kInvalidArgument, "a write has at most " + std::to_string(kMaxWriteBytes) + " bytes, not " +
                                        std::to_string(bytes) + ", and a pointer to them"};
  }
  if (phase_ != Phase::kOpen || granted_ == nullptr)
    return {Code::kInvalidUsage, "the connection is not open, or its peer not admitted"};
  // A key without a part for the NIC of this connection cannot be written to. That is a failure of the
  // connection and not of this call, as with other backends, where the peer detects it.
  PackedKey key;
  const bool known = from_region_key(region, key) && key.keys[peer_.nic_slot] != 0;
  if (!known) key = {};
  // The sum may wrap. The address then lies before the region, where the key allows nothing.
  send_.push_write(data, bytes, key.keys[peer_.nic_slot], key.page_offset + offset, immediate, token);
  if (!known && bytes > 0) {
    fail("a write names memory that the peer has not registered with the NIC of this connection");
  } else {
    queued_something();
  }
  return Status::ok();
}

// Both limits hold: the number of unfinished writes and their bytes.
size_t RdmaConnection::write_window() const {
  if (phase_ != Phase::kOpen || granted_ == nullptr || send_.queued_bytes() >= kMaxQueuedWriteBytes) return 0;
  return kMaxQueuedWrites - std::min(kMaxQueuedWrites, send_.queued_writes());
}

// The adapter is given what is queued by the next poll(), so that requests made together reach it
// together.
void RdmaConnection::queued_something() {
  if (unflushed_) return;
  unflushed_ = true;
  device_.unflushed.push_back(this);
  device_.loop.wake();
}

// receive_.owed are the credits to return; whoever sends a frame takes them along.
void RdmaConnection::flush() {
  unflushed_ = false;
  if (phase_ == Phase::kOpen) {
    if (const Status posted = send_.post(receive_.owed); !posted.is_ok()) fail(posted.message());
  } else if (phase_ == Phase::kClosing && !goodbye_posted_) {
    goodbye_posted_ = send_.post_goodbye(receive_.owed);
  }
}

// A receive or a send request has completed. A failed request means that the queue pair is in ERR: the
// first failure begins the end, and those that follow are the requests that come back. A flush error
// without an earlier failure means that the peer's side broke, as this side does when a peer writes
// outside of registered memory.
void RdmaConnection::on_completion(const ibv_wc& completion) {
  if (phase_ == Phase::kFinished) return;
  const bool is_receive = (completion.wr_id & kReceiveBit) != 0;
  const auto sequence = static_cast<uint32_t>(completion.wr_id & kSequenceMask);
  if (completion.status != IBV_WC_SUCCESS) {
    if (is_receive) {
      receive_.retire();
    } else {
      send_.on_failed(sequence);
    }
    if (phase_ != Phase::kDraining) {
      fail(completion.status == IBV_WC_WR_FLUSH_ERR
               ? "the queue pair broke; the peer may have written outside of registered memory"
               : std::string("the queue pair broke: ") + ::ibv_wc_status_str(completion.status));
    }
  } else if (is_receive) {
    on_received(sequence, completion.byte_len);
  } else {
    send_.on_completed(sequence, sent_);
    report_sent(Status::ok());
    // Requests complete in order, so everything before the goodbye has completed as well.
    if (phase_ == Phase::kClosing && send_.goodbye_sent()) drain(reason_, given_up_);
    queued_something();
  }
  if (phase_ == Phase::kDraining && drained()) finish();
}

// The first frame may arrive before rdma_cm's ESTABLISHED, and opens the connection as well. While a
// stranger has handed over a message in this round, its further frames are held: the owner may admit it
// before they are judged.
void RdmaConnection::on_received(uint32_t slot, uint32_t bytes) {
  // A peer that sends has seen the reply.
  if (phase_ == Phase::kAccepting) opened(Completion::Kind::kAccepted);
  if (held_.empty() && (granted_ != nullptr || !looked_at_)) return on_frame(slot, bytes);
  held_.emplace_back(slot, bytes);
}

// The last one may be a goodbye, and may make the connection drained.
void RdmaConnection::release_held() {
  looked_at_ = false;
  while (!held_.empty() && (granted_ != nullptr || !looked_at_)) {
    const auto [slot, bytes] = held_.front();
    held_.pop_front();
    on_frame(slot, bytes);
  }
  if (phase_ == Phase::kDraining && drained()) finish();
}

void RdmaConnection::on_turned_out(const Status& why) { drain(why, why); }

// A frame that breaks the rules ends the connection. If it is draining already, the reason is still
// replaced: frames that came before the break explain it better. A slot is posted anew only while the
// connection goes on.
void RdmaConnection::on_frame(uint32_t slot, uint32_t bytes) {
  ++received_;
  Status taken = take_frame(receive_.frame(slot, bytes));
  if (taken.is_ok() && (phase_ == Phase::kOpen || phase_ == Phase::kClosing)) {
    taken = receive_.post_again(slot);
  } else {
    receive_.retire();
  }
  if (!taken.is_ok()) {
    deliver_ = false;
    if (phase_ == Phase::kDraining) reason_ = taken;
    drain(taken, taken);
  }
  queued_something();
}

// The frame is foreign and has been placed by the adapter; to_frame() checks its head. Credits count in
// every frame.
Status RdmaConnection::take_frame(std::span<const std::byte> frame) {
  const Result<FrameHeader> read = to_frame(frame, peer_.receive_slots, partial_.size());
  if (!read.is_ok()) return read.status();
  const FrameHeader& header = read.value();
  const std::span<const std::byte> body = frame.subspan(sizeof header);
  send_.on_credits(header.credits);
  switch (header.type) {
    case FrameType::kMessage:
      return take_message(header, body);
    case FrameType::kWritten:
      return take_written(header, body);
    case FrameType::kCredits:
      return Status::ok();
    case FrameType::kGoodbye:
      // In order, even if the disconnect of rdma_cm was noticed before: the reason is then replaced.
      deliver_ = false;
      if (phase_ == Phase::kDraining) reason_ = Status::ok();
      drain(Status::ok(), {Code::kLink, "the peer closed the connection"});
      return Status::ok();
  }
  return {Code::kLink, "malformed frame: unknown type"};
}

// Pieces are collected in partial_, unless the message has only one. The limits of a stranger are checked
// for every piece, so that it cannot fill memory. After a message of a stranger, frames behind it wait
// until the next poll() (holding).
Status RdmaConnection::take_message(const FrameHeader& header, std::span<const std::byte> body) {
  if (!deliver_) return Status::ok();
  if (header.more == 1 || !partial_.empty()) partial_.insert(partial_.end(), body.begin(), body.end());
  if (granted_ == nullptr) {
    const size_t all = std::max(partial_.size(), body.size());
    if (all > kMaxStrangerMessageBytes || (header.more == 0 && ++stranger_messages_ > kMaxStrangerMessages))
      return {Code::kLink, "more than short messages from a peer that has not shown who it is"};
  }
  if (header.more == 1) return Status::ok();
  if (granted_ == nullptr) {
    looked_at_ = true;
    device_.holding.push_back(this);
    device_.loop.wake();
  }
  report(Completion::Kind::kMessage);
  device_.pending.back().message =
      device_.arena.copy(partial_.empty() ? body : std::span<const std::byte>(partial_));
  partial_.clear();
  return Status::ok();
}

// The payload is in its place already. The peer's report is checked against what was granted to it, as the
// adapter knows keys and not peers.
Status RdmaConnection::take_written(const FrameHeader& header, std::span<const std::byte> body) {
  if (granted_ == nullptr) return {Code::kLink, "a write from a peer that has not shown who it is"};
  const std::byte* placed = nullptr;
  if (header.bytes > 0) {
    placed = granted_->find_written(device_.nic.slot(), header.region, header.address, header.bytes);
    if (placed == nullptr) return {Code::kLink, "a write outside of registered memory"};
  }
  if (!deliver_) return Status::ok();
  report(Completion::Kind::kWritten);
  Completion& completion = device_.pending.back();
  std::memcpy(completion.immediate.data(), body.data(), kImmediateBytes);
  completion.bytes = header.bytes;
  completion.message = {placed, header.bytes};
  return Status::ok();
}

// Before it is open no goodbye can be sent. Otherwise the end comes with the goodbye's completion, or
// after kGoodbyeMs; messages and writes that still arrive are not reported.
void RdmaConnection::close() {
  const Status given_up(Code::kAborted, "the connection was closed on this side");
  if (phase_ == Phase::kFinished || phase_ == Phase::kClosing || phase_ == Phase::kDraining) return;
  deliver_ = false;
  if (phase_ != Phase::kOpen) return drain(Status::ok(), given_up);
  // The goodbye follows what the adapter has been given. The rest of the queue is given up when both have
  // completed.
  phase_ = Phase::kClosing;
  reason_ = Status::ok();
  given_up_ = given_up;
  send_.stop();
  device_.loop.set_deadline(this, kGoodbyeMs);
  queued_something();
}

// Nothing is sent; the disconnect of rdma_cm is all that the peer gets.
void RdmaConnection::abandon() {
  deliver_ = false;
  drain(Status::ok(), {Code::kAborted, "the connection was given up on this side"});
}

void RdmaConnection::fail(const std::string& reason) {
  const Status status(Code::kLink, reason);
  drain(status, status);
}

void RdmaConnection::check_gid() {
  if (pair_.gid_moved()) fail("the address of " + device_.nic.name() + " moved (its GID changed)");
}

// A removed adapter hands nothing back, so waiting for it would be in vain.
void RdmaConnection::on_removal() {
  if (phase_ == Phase::kFinished) return;
  reason_ = given_up_ = Status(Code::kLink, "the RDMA device " + device_.nic.name() + " was removed");
  phase_ = Phase::kDraining;
  finish();
}

// 1. From here on nothing new is posted, and the stranger leaves the count. A close keeps its reason.
// 2. A connection that the owner does not know (kAccepting) is put aside, to be freed by poll(); it cannot
//    be freed here, as its own call may be under way.
// 3. The queue pair goes to ERR, and rdma_cm sends the peer a disconnect if there was a connection.
//    Frames that are held are dropped.
// 4. finish() follows at once if nothing is with the adapter, otherwise when the last request has come
//    back.
void RdmaConnection::drain(const Status& reason, const Status& given_up) {
  if (phase_ == Phase::kDraining || phase_ == Phase::kFinished) return;
  leave();
  const bool was_open = phase_ != Phase::kConnecting;
  const bool unknown = phase_ == Phase::kAccepting;
  if (phase_ != Phase::kClosing) {  // close() has set the reason
    reason_ = reason;
    given_up_ = given_up;
  }
  send_.stop();
  if (unknown) {
    phase_ = Phase::kFinished;
    device_.loop.clear_deadline(this);
    device_.discarded.push_back(this);
    device_.loop.wake();
    return;
  }
  phase_ = Phase::kDraining;
  for (; !held_.empty(); held_.pop_front()) receive_.retire();
  pair_.to_error();
  if (was_open) verbs_.disconnect(id_);
  device_.loop.set_deadline(this, kDrainMs);
  if (!was_open || drained()) finish();
}

// The queue pair is destroyed before anything is reported: the owner may reuse memory as soon as it reads
// kSent. Registrations for single writes are released by give_up().
void RdmaConnection::finish() {
  leave();
  device_.loop.clear_deadline(this);
  device_.by_number.erase(number_);
  pair_.destroy();
  if (id_ != nullptr) verbs_.destroy_id(id_);
  id_ = nullptr;
  phase_ = Phase::kFinished;
  send_.give_up(sent_);
  report_sent(given_up_);
  report(Completion::Kind::kClosed);
  device_.pending.back().error = reason_;
}

// An adapter does not report how long an acknowledgement takes, so round_ns is not known.
Connection::Progress RdmaConnection::progress() const {
  if (phase_ != Phase::kOpen) return {};
  return {send_.completed() + received_, send_.requests_under_way() > 0};
}

// The reference is into a vector, so the caller fills it in before the next report.
void RdmaConnection::report(Completion::Kind kind) {
  Completion& completion = device_.pending.emplace_back();
  completion.kind = kind;
  completion.connection = this;
  device_.loop.wake();
}

void RdmaConnection::report_sent(const Status& status) {
  for (const SendQueue::Sent& frame : sent_) {
    report(Completion::Kind::kSent);
    device_.pending.back().token = frame.token;
    device_.pending.back().bytes = frame.bytes;
    device_.pending.back().error = status;
  }
  sent_.clear();
}

}  // namespace hdt::transport::rdma
