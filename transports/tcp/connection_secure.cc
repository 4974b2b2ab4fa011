// connection_secure.cc: how a connection comes to be protected (secure_start.h).
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "transports/tcp/connection.h"

namespace hdt::transport::tcp {

// The test of the path is over, at the end that dialled.
void TcpConnection::begin_securing() {
  start_ = std::make_unique<SecureStart>(device_.options.security, secure::Role::kDialer);
  if (const Status begun = start_->begin(); !begun.is_ok()) return fail(begun.message());
  pump_start();
}

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

// All of the peer's part has come; what follows is sealed. What was read of that already goes on from here.
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

// Of the end that dialled: its owner may use it.
void TcpConnection::open_up() {
  device_.loop.clear_deadline(this);
  phase_ = Phase::kOpen;
  report(Completion::Kind::kConnected);
}

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
