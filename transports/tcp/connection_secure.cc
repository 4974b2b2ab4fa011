// connection_secure.cc: the part of a connection in which it becomes protected, after the path test
// (secure_start.h has the protocol). The dialer's begin_securing() sends the first frames; on_secure()
// takes those of the peer; on_secured() replaces the reader and the writer when the keys are there;
// pump_start() sends what is queued in the clear, and then lets the connection go on.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "transports/tcp/connection.h"

namespace hdt::transport::tcp {

// On the end that dialled, when the path test is over.
void TcpConnection::begin_securing() {
  start_ = std::make_unique<SecureStart>(device_.options.security, secure::Role::kDialer);
  if (const Status begun = start_->begin(); !begun.is_ok()) return fail(begun.message());
  pump_start();
}

// A kSecure frame has arrived. It is called from inside read(), so a refusal is only noted; receive()
// sends it. Returns false when the reader must stop: after a refusal, and when the keys are there, as
// sealed bytes follow.
bool TcpConnection::on_secure(const FrameHeader& header, std::span<const std::byte> content) {
  if (!tried_) {
    out_of_order_ = true;
    return true;
  }
  if (start_ == nullptr) {
    refusal_ = protected_by_peer_only();
    return false;
  }
  if (Status status = start_->on_frame(header, content); !status.is_ok()) {
    refusal_ = std::move(status);
    return false;
  }
  return !start_->done();
}

// The keys are there: everything that the peer sends from now on is sealed. Bytes that the old reader
// has read beyond the last kSecure frame are handed to the new one, which parses them now, because epoll
// does not report them. Frames that this end has queued in the clear leave before any sealed byte: flush()
// does nothing while start_ is set.
void TcpConnection::on_secured() {
  secure::Session session = start_->take();
  binding_ = session.binding;
  sealed_ = std::make_unique<SealedReader>(std::move(session.opener), reader_.take_rest());
  if (granted_ != nullptr) sealed_->admit();
  writer_.seal(std::move(session.sealer));
  secured_ = true;
  pump_start();
  if (phase_ == Phase::kOpen) receive();
}

// Sends the queue of the exchange. When it is empty and the keys are there, the exchange is over: the
// dialer reports kConnected, the acceptor sends what its owner has queued.
void TcpConnection::pump_start() {
  const SecureStart::Pump pumped = start_->pump(fd_.get());
  if (pumped == SecureStart::Pump::kFailed) return fail(std::strerror(errno));
  if (pumped == SecureStart::Pump::kBlocked) return watch(EPOLLIN | EPOLLOUT);
  watch(EPOLLIN);
  if (!secured_) return;
  start_.reset();
  if (phase_ == Phase::kTrying) return open_up();
  flush();
}

// On the end that dialled: its owner may use the connection.
void TcpConnection::open_up() {
  device_.loop.clear_deadline(this);
  phase_ = Phase::kOpen;
  report(Completion::Kind::kConnected);
}

// The peer can be refused in the clear only where a frame begins, so the queue of the exchange must have
// left. As a rule only an accepted connection is open at this point; a dialer just closes.
void TcpConnection::refuse(const Status& why) {
  bool told = false;
  if (start_ != nullptr) (void)start_->pump(fd_.get());  // so that the refusal is a frame of its own
  if (phase_ == Phase::kOpen && !start_pending()) {
    const std::vector<std::byte> frame = refusal(why.message(), kRefusalConfig);
    told = ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(frame.size());
  }
  finish(why, why, told);
}

}  // namespace hdt::transport::tcp
