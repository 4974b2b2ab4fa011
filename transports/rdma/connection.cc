// connection.cc: what an open connection does, and how it ends; see connection.h. How it begins is in
// handshake.cc.
#include "transports/rdma/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hdt::transport::rdma {

namespace {
// As for tcp: enough from poll to poll, little enough that a slow rail does not hold much back. An adapter
// needs more in its hands than a socket, as what it has not sent is not buffered anywhere else.
constexpr size_t kMaxQueuedWrites = 64;
constexpr size_t kMaxQueuedWriteBytes = size_t{4} << 20;
constexpr int64_t kGoodbyeMs = 1000;
constexpr int64_t kDrainMs = 1000;
}  // namespace

RdmaConnection::RdmaConnection(DeviceState& device)
    : device_(device),
      verbs_(device.nic.verbs()),
      number_(device.next_number++),
      pair_(device.nic, device.queues),
      send_(*device.domain, device.nic, number_),
      receive_(device.nic, number_) {
  hello_.nic_slot = device.nic.slot();
}

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

Status RdmaConnection::admit(const PeerName& peer) {
  if (phase_ != Phase::kOpen || granted_ != nullptr)
    return {Code::kInvalidUsage, "only an open connection can be admitted, once"};
  HDT_RETURN_IF_ERROR(pair_.allow_writes());
  leave();
  granted_ = device_.domain->grants_of(peer);
  report(Completion::Kind::kReady);
  return Status::ok();
}

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
  PackedKey key;
  const bool known = from_region_key(region, key) && key.keys[peer_.nic_slot] != 0;
  if (!known) key = {};
  // The sum may wrap: the address then lies before the region, where the key allows nothing.
  send_.push_write(data, bytes, key.keys[peer_.nic_slot], key.page_offset + offset, immediate, token);
  if (!known && bytes > 0) {
    fail("a write names memory that the peer has not registered with the NIC of this connection");
  } else {
    queued_something();
  }
  return Status::ok();
}

size_t RdmaConnection::write_window() const {
  if (phase_ != Phase::kOpen || granted_ == nullptr || send_.queued_bytes() >= kMaxQueuedWriteBytes) return 0;
  return kMaxQueuedWrites - std::min(kMaxQueuedWrites, send_.queued_writes());
}

// The adapter is given what is queued by the next poll(), so that requests made together reach it together.
void RdmaConnection::queued_something() {
  if (unflushed_) return;
  unflushed_ = true;
  device_.unflushed.push_back(this);
  device_.loop.wake();
}

void RdmaConnection::flush() {
  unflushed_ = false;
  if (phase_ == Phase::kOpen) {
    if (const Status posted = send_.post(receive_.owed); !posted.is_ok()) fail(posted.message());
  } else if (phase_ == Phase::kClosing && !goodbye_posted_) {
    goodbye_posted_ = send_.post_goodbye(receive_.owed);
  }
}

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
    if (phase_ == Phase::kClosing && send_.goodbye_sent()) drain(reason_, given_up_);
    queued_something();
  }
  if (phase_ == Phase::kDraining && drained()) finish();
}

void RdmaConnection::on_received(uint32_t slot, uint32_t bytes) {
  if (phase_ == Phase::kAccepting) opened(Completion::Kind::kAccepted);
  if (held_.empty() && (granted_ != nullptr || !looked_at_)) return on_frame(slot, bytes);
  held_.emplace_back(slot, bytes);
}

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
      deliver_ = false;
      if (phase_ == Phase::kDraining) reason_ = Status::ok();
      drain(Status::ok(), {Code::kLink, "the peer closed the connection"});
      return Status::ok();
  }
  return {Code::kLink, "malformed frame: unknown type"};
}

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

void RdmaConnection::close() {
  const Status given_up(Code::kAborted, "the connection was closed on this side");
  if (phase_ == Phase::kFinished || phase_ == Phase::kClosing || phase_ == Phase::kDraining) return;
  deliver_ = false;
  if (phase_ != Phase::kOpen) return drain(Status::ok(), given_up);
  // The goodbye follows what the adapter has been given; the rest is given up when both are through.
  phase_ = Phase::kClosing;
  reason_ = Status::ok();
  given_up_ = given_up;
  send_.stop();
  device_.loop.set_deadline(this, kGoodbyeMs);
  queued_something();
}

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

void RdmaConnection::on_removal() {
  if (phase_ == Phase::kFinished) return;
  reason_ = given_up_ = Status(Code::kLink, "the RDMA device " + device_.nic.name() + " was removed");
  phase_ = Phase::kDraining;
  finish();
}

// The queue pair goes to its error state, where the adapter hands back every request, in order; only then is
// the end reported.
void RdmaConnection::drain(const Status& reason, const Status& given_up) {
  if (phase_ == Phase::kDraining || phase_ == Phase::kFinished) return;
  leave();
  const bool was_open = phase_ != Phase::kConnecting;
  const bool unknown = phase_ == Phase::kAccepting;
  if (phase_ != Phase::kClosing) {  // whose reason is that this side closed it
    reason_ = reason;
    given_up_ = given_up;
  }
  send_.stop();
  if (unknown) {  // to nobody's sorrow
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

Connection::Progress RdmaConnection::progress() const {
  if (phase_ != Phase::kOpen) return {};
  return {send_.completed() + received_, send_.requests_under_way() > 0};
}

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
