// connection_end.cc: how a connection ends; see connection.h. Every way leads to kClosed as the last
// completion:
// - close(): in order. A goodbye is sent, and the socket lingers until the peer has read it.
// - abandon(), fail() and on_turned_out(): at once; the socket is closed.
// - on_failure(): an exception. Nothing can be allocated, so kClosed follows when there is memory again.
//
// After kSent or kClosed the kernel does not read the caller's memory in any of them. Payload sent with
// MSG_ZEROCOPY is waited for (close()) or taken back by resetting the socket (all others).
#include "transports/net/attempt.h"
#include "transports/tcp/connection.h"

namespace hdt::transport::tcp {

namespace {
// How long a connection that was closed waits for the peer to take the payload that is sent from the
// caller's memory.
constexpr int64_t kCloseMs = 1000;
// An attempt that the owner gives up early, before the test is stuck for kStuckMs, counts as a suspicion
// (PathMemory::suspect) if large packets were missing for this long.
constexpr int64_t kSuspectMs = 300;
}  // namespace

// The status of what was queued when this side closed.
Status TcpConnection::closed_here() { return {Code::kAborted, "the connection was closed on this side"}; }

void TcpConnection::close() {
  (void)attempt_for(*this, [this] { end_in_order(); });
}

// 1. Sends the goodbye behind what the kernel already has. It is not possible in the middle of a frame,
//    or before the connection is open; then the socket is closed without one.
// 2. If the kernel reads none of the caller's memory, that is the end.
// 3. Otherwise the queue is given up now, and what was handed over is waited for in kClosing: its
//    notifications come as EPOLLERR, which epoll always reports.
void TcpConnection::end_in_order() {
  if (phase_ == Phase::kFinished || phase_ == Phase::kClosing) return;
  const bool in_order = phase_ == Phase::kOpen && !start_pending() && writer_.say_goodbye(fd_.get());
  const Status closed = closed_here();
  if (in_order) read_errors();
  if (!in_order || !writer_.kernel_reads()) return finish(Status::ok(), closed, in_order);
  writer_.give_up_queue(sent_);
  report_sent(closed);
  phase_ = Phase::kClosing;
  watch(0);  // what is left comes as EPOLLERR
  device_.loop.set_deadline(this, kCloseMs);
}

void TcpConnection::abandon() {
  if (phase_ == Phase::kFinished) return;
  (void)attempt_for(*this, [this] {
    finish(Status::ok(), Status(Code::kAborted, "the connection was given up on this side"), false);
  });
}

void TcpConnection::fail(const std::string& reason) {
  const Status status(Code::kLink, reason);
  finish(status, status, false);
}

// Called in the middle of the accept of another connection, so an exception must not pass.
void TcpConnection::on_turned_out(const Status& why) {
  (void)attempt_for(*this, [&] { finish(why, why, false); });
}

// The books of the reader or the writer may be half updated, so the only thing that may follow is the end.
// Writes that were under way are not reported one by one: kClosed implies it. If the kernel still reads the
// caller's memory, the socket is reset.
void TcpConnection::on_failure() {
  if (closed_ || lost_) return;
  leave();
  if (fd_.valid()) {
    device_.loop.remove(fd_.get(), this);
    if (writer_.kernel_reads()) discard_on_close(fd_.get());
    fd_.reset();
  }
  sent_.clear();
  phase_ = Phase::kFinished;
  lost_ = true;
  ++device_.lost;
  device_.loop.wake();
}

// The completion is complete before it is appended; if appending throws, it is tried again with the next
// poll().
void TcpConnection::report_lost() {
  if (!lost_) return;
  Completion closed;
  closed.kind = Completion::Kind::kClosed;
  closed.connection = this;
  closed.error = Status(Code::kSystem, "there was no memory for the connection");
  device_.pending.push_back(std::move(closed));
  lost_ = false;
  --device_.lost;
  closed_ = true;
}

// Any step may throw for want of memory until closed_ is set, and on_failure() can end the connection
// from every one of them. `reason` and `given_up` are copied or used before anything is freed, as they
// may belong to this connection.
void TcpConnection::finish(const Status& reason, const Status& given_up, bool in_order) {
  Status why = reason;
  leave();
  if (phase_ == Phase::kTrying) {
    if (const auto limit = test_.stuck(fd_.get(), kSuspectMs * kNsPerMs, now_ns());
        limit && limit->passes != 0)
      PathMemory::of_process().suspect(local_.host(), remote_.host(), *limit, now_ns());
  }
  writer_.give_up(sent_);
  report_sent(given_up);
  device_.loop.remove(fd_.get(), this);
  // Otherwise the kernel would go on reading memory that is the caller's again.
  if (writer_.kernel_reads()) discard_on_close(fd_.get());
  if (in_order) {
    device_.lingering.add(std::move(fd_));
  } else {
    fd_.reset();
  }
  phase_ = Phase::kFinished;
  report(Completion::Kind::kClosed);
  device_.pending.back().error = std::move(why);
  closed_ = true;
}

}  // namespace hdt::transport::tcp
