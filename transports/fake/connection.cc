// connection.cc: one end of a connection of a FakeNetwork (see device.h). Payload is copied from the sender's
// memory straight to the receiver's when the receiver polls. So a sender that changes or frees its memory
// before kSent is found by wrong bytes or by the address sanitizer.
#include <algorithm>
#include <cstring>

#include "transports/fake/device.h"

namespace hdt::transport::fake {

namespace {
// The write window: as tcp's.
constexpr size_t kMaxQueuedWrites = 64;
constexpr size_t kMaxQueuedWriteBytes = size_t{1} << 20;
// The polls after which a lost frame is sent again.
constexpr uint32_t kRepeatPolls = 10;
}  // namespace

FakeConnection::FakeConnection(FakeDevice& device, std::string local, std::string remote,
                               std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out)
    : device_(device),
      local_(std::move(local)),
      remote_(std::move(remote)),
      in_(std::move(in)),
      out_(std::move(out)) {
  in_->receiver = this;
  out_->sender = this;
}

// Runs for a finished connection, or with the mutex held.
FakeConnection::~FakeConnection() {
  if (!finished_) leave_pipes();
}

// The other end must not report to this one any more.
void FakeConnection::leave_pipes() {
  in_->receiver = nullptr;
  out_->sender = nullptr;
}

// Before kConnected was reported nothing may be sent, although both ends exist already.
Status FakeConnection::check_open() const {
  if (open_ && !finished_) return Status::ok();
  return {Code::kInvalidUsage, "the connection is not open"};
}

// In memory nothing has to be made ready, so kReady follows at once.
Status FakeConnection::admit(const PeerName& peer) {
  const std::lock_guard lock(device_.network().mutex);
  HDT_RETURN_IF_ERROR(check_open());
  if (granted_ != nullptr) return {Code::kInvalidUsage, "the connection was admitted before"};
  granted_ = device_.regions().table_of(peer);
  device_.report(Completion::Kind::kReady, this);
  return Status::ok();
}

std::string FakeConnection::not_for_strangers(const Frame& frame) {
  const std::string from = " from a peer that has not shown who it is";
  if (frame.is_write) return "a write" + from;
  if (frame.bytes > kMaxStrangerMessageBytes)
    return "a message of " + std::to_string(frame.bytes) + " bytes" + from;
  return ++stranger_messages_ > kMaxStrangerMessages ? "too many messages" + from : "";
}

std::byte* FakeConnection::locate(const Frame& frame) const {
  return granted_->locate(frame.region, frame.offset, frame.bytes);
}

Status FakeConnection::send(std::span<const std::byte> message, uint64_t token) {
  if (message.empty() || message.size() > kMaxMessageBytes) {
    return {Code::kInvalidArgument, "a message has 1 to " + std::to_string(kMaxMessageBytes) +
                                        " bytes, not " + std::to_string(message.size())};
  }
  const std::lock_guard lock(device_.network().mutex);
  HDT_RETURN_IF_ERROR(check_open());
  if (granted_ == nullptr && message.size() > kMaxStrangerMessageBytes)
    return {Code::kInvalidUsage, "a peer that is not admitted is sent short messages only"};
  // A message is copied now; the payload of a write is read when the receiver polls.
  Frame frame;
  frame.copy.assign(message.begin(), message.end());
  frame.bytes = message.size();
  frame.token = token;
  post(std::move(frame));
  return Status::ok();
}

Status FakeConnection::write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
                             const Immediate& immediate, uint64_t token) {
  if (bytes > kMaxWriteBytes || (bytes > 0 && data == nullptr)) {
    return {Code::kInvalidArgument, "a write has at most " + std::to_string(kMaxWriteBytes) + " bytes, not " +
                                        std::to_string(bytes) + ", and a pointer to them"};
  }
  const std::lock_guard lock(device_.network().mutex);
  HDT_RETURN_IF_ERROR(check_open());
  if (granted_ == nullptr) return {Code::kInvalidUsage, "the peer is not admitted"};
  Frame frame;
  frame.is_write = true;
  frame.data = static_cast<const std::byte*>(data);
  frame.bytes = bytes;
  frame.region = from_region_key(region);
  frame.offset = offset;
  frame.immediate = immediate;
  frame.token = token;
  ++out_->writes;
  out_->write_bytes += bytes;
  post(std::move(frame));
  return Status::ok();
}

// Delays are drawn here, once per frame. A lost frame is one that comes later.
void FakeConnection::post(Frame frame) {
  NetworkState& network = device_.network();
  const Faults& faults = network.faults_of(out_->from);
  if (faults.max_delay_polls > 0) {
    frame.delay = static_cast<uint32_t>(network.random() % (uint64_t{faults.max_delay_polls} + 1));
  }
  if (faults.lose_one_in > 0 && network.random() % faults.lose_one_in == 0) frame.delay += kRepeatPolls;
  out_->frames.push_back(std::move(frame));
  signal_peer();
}

size_t FakeConnection::write_window() const {
  const std::lock_guard lock(device_.network().mutex);
  if (!check_open().is_ok() || granted_ == nullptr || out_->write_bytes >= kMaxQueuedWriteBytes) return 0;
  return kMaxQueuedWrites - std::min(kMaxQueuedWrites, out_->writes);
}

void FakeConnection::close() {
  const std::lock_guard lock(device_.network().mutex);
  if (finished_) return;
  finish(Status::ok(), Status(Code::kAborted, "the connection was closed on this side"), Status::ok());
}

// The peer reports kLink, where close() makes it report an end in order.
void FakeConnection::abandon() {
  const std::lock_guard lock(device_.network().mutex);
  if (finished_) return;
  finish(Status::ok(), Status(Code::kAborted, "the connection was given up on this side"),
         Status(Code::kLink, "the peer closed without a goodbye"));
}

// Something is outstanding as long as a frame of this end is not delivered, which is what a blackhole leaves
// behind.
Connection::Progress FakeConnection::progress() const {
  const std::lock_guard lock(device_.network().mutex);
  return {out_->delivered + out_->placed + in_->delivered + in_->placed, !out_->frames.empty(),
          device_.network().faults_of(in_->from).round_ns};
}

// One poll of this end. For each frame in turn: wait for its delay, apply the faults, check what a stranger
// may send, place the payload, report.
bool FakeConnection::deliver() {
  if (finished_) return false;
  const Faults& faults = device_.network().faults_of(in_->from);
  if (faults.blackhole) return false;
  // The payload bytes of this poll; messages cost nothing.
  uint64_t budget = faults.bytes_per_poll > 0 ? faults.bytes_per_poll : UINT64_MAX;
  bool any = false;
  // Frames are delivered in order: one that waits holds up all behind it.
  while (!in_->frames.empty()) {
    Frame& frame = in_->frames.front();
    any = true;
    if (frame.delay > 0) {
      --frame.delay;
      return true;
    }
    if (faults.fail_after_frames > 0 && in_->delivered >= faults.fail_after_frames) {
      break_wire("broken after " + std::to_string(in_->delivered) + " frames");
      return true;
    }
    // Checks before anything is placed or reported.
    if (const std::string why = granted_ == nullptr ? not_for_strangers(frame) : ""; !why.empty()) {
      fail(why);
      return true;
    }
    if (frame.is_write && !place(frame, budget)) return true;
    corrupt(frame, faults);
    hand_over(frame);
    if (frame.is_write && faults.duplicate_one_in > 0 &&
        device_.network().random() % faults.duplicate_one_in == 0)
      report_written(frame);
    in_->frames.pop_front();
    if (granted_ == nullptr) return true;  // one message a poll: its owner may admit the peer before the next
  }
  // The end of the peer comes after all that it has sent.
  if (!in_->closed) return any;
  finish(in_->close_reason, Status(Code::kLink, "the peer closed the connection"), Status::ok());
  return true;
}

// The place is looked up in every poll: the region may have been revoked since the last part was placed.
bool FakeConnection::place(Frame& frame, uint64_t& budget) {
  if (frame.bytes == 0) return true;
  std::byte* target = locate(frame);
  if (target == nullptr) {
    fail("the peer wrote outside of registered memory (" + std::to_string(frame.bytes) + " bytes at offset " +
         std::to_string(frame.offset) + ")");
    return false;
  }
  const size_t now = std::min<uint64_t>(budget, frame.bytes - frame.placed);
  std::memcpy(target + frame.placed, frame.data + frame.placed, now);
  frame.placed += now;
  in_->placed += now;
  budget -= now;
  return frame.placed == frame.bytes;
}

// Flips one bit of the payload, as a NIC with faulty memory would, when all of it is placed and before it is
// reported.
void FakeConnection::corrupt(const Frame& frame, const Faults& faults) {
  if (!frame.is_write || frame.bytes == 0 || faults.corrupt_one_in == 0) return;
  NetworkState& network = device_.network();
  if (network.random() % faults.corrupt_one_in != 0) return;
  std::byte* target = locate(frame);
  target[network.random() % frame.bytes] ^= std::byte(1U << network.random() % 8);
}

// The sender gets kSent in its next poll.
void FakeConnection::hand_over(const Frame& frame) {
  ++in_->delivered;
  if (frame.is_write) {
    report_written(frame);
    --in_->writes;
    in_->write_bytes -= frame.bytes;
  } else {
    device_.report(Completion::Kind::kMessage, this).message = device_.keep(frame.copy);
  }
  if (in_->sender != nullptr) in_->sender->report_sent(frame, Status::ok());
}

void FakeConnection::report_written(const Frame& frame) {
  Completion& completion = device_.report(Completion::Kind::kWritten, this);
  completion.immediate = frame.immediate;
  completion.bytes = frame.bytes;
  completion.message = {locate(frame), frame.bytes};
}

// Only the frame at the front can be partly placed.
bool FakeConnection::inside_write_to(uint64_t region, const RegionTable* of) const {
  return (of == nullptr || of == granted_.get()) && !finished_ && !in_->frames.empty() &&
         in_->frames.front().placed > 0 && in_->frames.front().region == region;
}

void FakeConnection::fail(const std::string& reason) {
  finish(Status(Code::kLink, reason), Status(Code::kLink, reason),
         Status(Code::kLink, "the peer failed: " + reason));
}

void FakeConnection::refuse() {
  const Status refused(Code::kNoDaemon, "cannot connect: refused");
  finish(refused, refused, refused);
}

// The peer is noted before: fail() leaves the pipes.
void FakeConnection::break_wire(const std::string& reason) {
  FakeConnection* peer = in_->sender;
  fail(reason);
  if (peer != nullptr) peer->fail(reason);
}

void FakeConnection::signal_peer() const {
  if (out_->receiver != nullptr) out_->receiver->device_.signal();
}

void FakeConnection::finish(const Status& reason, const Status& given_up, const Status& told_to_peer) {
  // 1. Frames that were delivered have left the pipe and were reported as sent then. All that are left are
  //    given up.
  for (const Frame& frame : out_->frames) report_sent(frame, given_up);
  out_->frames.clear();
  out_->writes = out_->write_bytes = 0;
  // 2. The peer finds this end closed in its next poll.
  out_->closed = true;
  out_->close_reason = told_to_peer;
  signal_peer();
  leave_pipes();
  // 3. kClosed is the last report.
  finished_ = true;
  device_.report(Completion::Kind::kClosed, this).error = reason;
}

// A write is always reported, a message only if it has a token (transport.h).
void FakeConnection::report_sent(const Frame& frame, const Status& status) {
  if (!frame.is_write && frame.token == 0) return;
  Completion& completion = device_.report(Completion::Kind::kSent, this);
  completion.token = frame.token;
  completion.bytes = frame.bytes;
  completion.error = status;
}

}  // namespace hdt::transport::fake
