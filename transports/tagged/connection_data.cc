// connection_data.cc: what moves on a connection's data path; see connection.h. Outgoing and Incoming have
// the protocol; here they are driven, and their results become completions.
#include "transports/tagged/connection.h"
#include "transports/tagged/operation.h"

namespace hdt::transport::tagged {

namespace {
// The write window: enough to keep the library busy between two polls, but little enough that a slow rail
// does not hold much back.
constexpr size_t kMaxQueuedWrites = 64;
constexpr size_t kMaxQueuedWriteBytes = size_t{4} << 20;
// After so many rounds the other connections of the device have their turn.
constexpr int kRoundsPerTurn = 4;
}  // namespace

// How a message goes depends on the phase: over the control socket between strangers, held back after the
// admission, through the data path once it works. The peer has read everything on the control socket before
// its data path is connected, so the order is kept.
Status TaggedConnection::send(std::span<const std::byte> message, uint64_t token) {
  if (message.empty() || message.size() > kMaxMessageBytes) {
    return {Code::kInvalidArgument, "a message has 1 to " + std::to_string(kMaxMessageBytes) +
                                        " bytes, not " + std::to_string(message.size())};
  }
  if (phase_ == Phase::kMeeting) {
    if (message.size() > kMaxStrangerMessageBytes)
      return {Code::kInvalidUsage, "a peer that is not admitted is sent short messages only"};
    control_.push_message(message);
    if (token != 0) said_.push_back({token, message.size()});
    flush_control();
    return Status::ok();
  }
  if (phase_ == Phase::kGreeting || phase_ == Phase::kProving) {
    held_.push_back({{message.begin(), message.end()}, token});
    return Status::ok();
  }
  if (phase_ != Phase::kOpen) return {Code::kInvalidUsage, "the connection is not open"};
  outgoing_.push_message(message, token);
  heat();
  return Status::ok();
}

Status TaggedConnection::write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
                               const Immediate& immediate, uint64_t token) {
  if (bytes > kMaxWriteBytes || (bytes > 0 && data == nullptr)) {
    return {Code::kInvalidArgument, "a write has at most " + std::to_string(kMaxWriteBytes) + " bytes, not " +
                                        std::to_string(bytes) + ", and a pointer to them"};
  }
  if (phase_ != Phase::kOpen)
    return {Code::kInvalidUsage, "the connection is not open, or its peer not admitted"};
  outgoing_.push_write(data, bytes, from_region_key(region), offset, immediate, token);
  heat();
  return Status::ok();
}

size_t TaggedConnection::write_window() const {
  if (phase_ != Phase::kOpen || outgoing_.queued_write_bytes() >= kMaxQueuedWriteBytes) return 0;
  return kMaxQueuedWrites - std::min(kMaxQueuedWrites, outgoing_.queued_writes());
}

// Without a data path there is nothing to work on; the control socket is handled by events.
void TaggedConnection::heat() {
  if (hot_ || !data_path_) return;
  hot_ = true;
  device_.hot.push_back(this);
  device_.loop.wake();
}

// 1. Rounds until nothing moves any more, a bounded number of them.
// 2. The peer is sent how much was taken, if no frame carried it.
// 3. Decides whether it may sleep. If anything moved, or the library had no room, it is called again.
//    Otherwise the data path is armed; a data path without a descriptor is polled as long as operations are
//    under way.
bool TaggedConnection::work() {
  if (phase_ != Phase::kProving && phase_ != Phase::kOpen) return false;
  bool any = false;
  for (int i = 0; i < kRoundsPerTurn; ++i) {
    bool moved = false;
    if (!step(moved)) return false;
    if (!moved) break;
    any = true;
  }
  if (!tell_taken()) return false;
  // It looks once more before it sleeps. In kProving it never sleeps, because it is not known yet whether the
  // library's descriptor wakes anybody.
  if (any || phase_ == Phase::kProving || outgoing_.starved() || incoming_.starved()) return true;
  if (data_path_->fd() >= 0) return !data_path_->arm();
  return outgoing_.library_busy() || incoming_.segments_busy();
}

// Every frame that is sent carries the number of frames taken, so a peer that is sent anything needs no
// kTaken. Operations that are over before a failure was noticed still count: their frames were delivered.
bool TaggedConnection::step(bool& moved) {
  moved = false;
  bool told = false;
  Status status = outgoing_.flush(*data_path_, incoming_.taken(), false, told);
  if (told) incoming_.told();
  if (told && data_path_->fd() < 0) control_.signal(Signal::kRing);
  if (status.is_ok()) status = incoming_.post(*data_path_);
  finished_.clear();
  if (status.is_ok()) status = data_path_->poll(finished_);
  for (const Finished& operation : finished_) {
    if (!operation.error.is_ok() && status.is_ok()) status = operation.error;
  }
  for (const Finished& operation : finished_) {
    if (!operation.error.is_ok()) continue;
    moved = true;
    ++moved_;
    if (const Status broken = on_finished(operation); !broken.is_ok()) {
      fail(broken);
      return false;
    }
  }
  report_sent(Status::ok());
  if (status.is_ok()) return true;
  on_data_path_failed(status);
  return false;
}

// kTaken is sent outside of the window, as the peer may need it to open its own.
bool TaggedConnection::tell_taken() {
  if (!incoming_.to_tell()) return true;
  bool told = false;
  const Status status = outgoing_.flush(*data_path_, incoming_.taken(), true, told);
  if (told) incoming_.told();
  if (told && data_path_->fd() < 0) control_.signal(Signal::kRing);
  if (status.is_ok()) return true;
  on_data_path_failed(status);
  return false;
}

Status TaggedConnection::on_finished(const Finished& operation) {
  const uint64_t number = number_of(operation.id);
  switch (operation_of(operation.id)) {
    case Operation::kFrameSent:
      return outgoing_.on_frame_sent(number, sent_);
    case Operation::kSegmentSent:
      return outgoing_.on_segment_sent(number, sent_);
    case Operation::kFrameReceived:
      return incoming_.on_frame(number, operation.bytes, *this);
    case Operation::kSegmentReceived:
      return incoming_.on_segment(number, operation.bytes, *this);
  }
  return {Code::kInternal, "an operation that nobody started"};
}

// The acceptor answers the dialer's probe, and is ready: its own probe leaves first, as frames are sent in
// order.
void TaggedConnection::on_probe() {
  if (!accepting_ || phase_ != Phase::kProving) return;
  outgoing_.push_probe();
  opened();
}

// The dialer is ready when its probe was taken, which the first frame of the peer says.
Status TaggedConnection::on_taken(uint64_t number) {
  HDT_RETURN_IF_ERROR(outgoing_.on_taken(number, sent_));
  if (!accepting_ && phase_ == Phase::kProving && number > 0) opened();
  report_sent(Status::ok());
  return Status::ok();
}

std::byte* TaggedConnection::locate(uint64_t region, uint64_t offset, size_t bytes) {
  return granted_ == nullptr ? nullptr : granted_->locate(region, offset, bytes);
}

void TaggedConnection::on_message(std::span<const std::byte> message) {
  report(Completion::Kind::kMessage);
  device_.pending.back().message = device_.arena.copy(message);
}

void TaggedConnection::on_written(const Immediate& immediate, std::span<const std::byte> placed) {
  report(Completion::Kind::kWritten);
  device_.pending.back().immediate = immediate;
  device_.pending.back().bytes = placed.size();
  device_.pending.back().message = placed;
}

}  // namespace hdt::transport::tagged
