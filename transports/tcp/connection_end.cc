// connection_end.cc: how a connection ends: in order, given up, failed, or for want of memory.
#include "transports/net/attempt.h"
#include "transports/tcp/connection.h"

namespace hdt::transport::tcp {

namespace {
// How long a connection that was closed waits for the peer to take what is read from the caller's memory.
constexpr int64_t kCloseMs = 1000;
// Large packets that have not come for so long may not pass (PathMemory::suspect), where the owner gives the
// attempt up before that is known.
constexpr int64_t kSuspectMs = 300;
}  // namespace

Status TcpConnection::closed_here() { return {Code::kAborted, "the connection was closed on this side"}; }

void TcpConnection::close() {
  (void)attempt_for(*this, [this] { end_in_order(); });
}

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

// In the middle of another one's work.
void TcpConnection::on_turned_out(const Status& why) {
  (void)attempt_for(*this, [&] { finish(why, why, false); });
}

// What was read or queued may be half in the books, so that nothing follows it but the end. What was under
// way is not reported one by one: who hears kClosed knows that nothing more will be.
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
  // Else the kernel would go on reading memory that is the caller's again.
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
