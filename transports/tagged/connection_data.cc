// connection_data.cc: what moves on a connection's channel; see connection.h.
#include "transports/tagged/connection.h"
#include "transports/tagged/operation.h"

namespace hdt::transport::tagged {

namespace {
// Enough to keep the library busy between two polls, little enough that a slow rail does not hold much back.
constexpr size_t kMaxQueuedWrites = 64;
constexpr size_t kMaxQueuedWriteBytes = size_t{4} << 20;
// After so many rounds the other connections of the device have their turn.
constexpr int kRoundsPerTurn = 4;
}  // namespace

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

void TaggedConnection::heat() {
  if (hot_ || !channel_) return;
  hot_ = true;
  device_.hot.push_back(this);
  device_.loop.wake();
}

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
  // Looks once more before it sleeps, and all the time while it is not known whether the library wakes
  // anybody.
  if (any || phase_ == Phase::kProving || outgoing_.starved() || incoming_.starved()) return true;
  if (channel_->fd() >= 0) return !channel_->arm();
  return outgoing_.library_busy() || incoming_.segments_busy();
}

bool TaggedConnection::step(bool& moved) {
  moved = false;
  bool told = false;
  Status status = outgoing_.flush(*channel_, incoming_.taken(), false, told);
  if (told) incoming_.told();
  if (told && channel_->fd() < 0) control_.signal(Signal::kRing);
  if (status.is_ok()) status = incoming_.post(*channel_);
  finished_.clear();
  if (status.is_ok()) status = channel_->poll(finished_);
  for (const Finished& operation : finished_) {
    if (!operation.error.is_ok() && status.is_ok()) status = operation.error;
  }
  // What has come before the failure counts.
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
  on_channel_failed(status);
  return false;
}

bool TaggedConnection::tell_taken() {
  if (!incoming_.to_tell()) return true;
  bool told = false;
  const Status status = outgoing_.flush(*channel_, incoming_.taken(), true, told);
  if (told) incoming_.told();
  if (told && channel_->fd() < 0) control_.signal(Signal::kRing);
  if (status.is_ok()) return true;
  on_channel_failed(status);
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

void TaggedConnection::on_probe() {
  if (!accepting_ || phase_ != Phase::kProving) return;
  outgoing_.push_probe();
  opened();
}

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
