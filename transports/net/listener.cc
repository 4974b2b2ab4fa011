// listener.cc: accepts connections (see listener.h). A connection that cannot be accepted for want of a
// descriptor stays in the kernel's queue, and the listening socket stays readable. So the listener gives up
// its spare descriptor to accept and refuse that peer; where it has none left, it is not watched for a while.
#include "transports/net/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "transports/net/congestion.h"

namespace hdt::transport::tcp {

namespace {
constexpr int kAcceptsPerEvent = 64;  // the rest is accepted at the next event
// A listener that cannot even refuse is not watched for this long. It stays readable, so its owner would
// never sleep.
constexpr int64_t kPauseMs = 100;
}  // namespace

Listener::~Listener() {
  if (fd_.valid()) loop_.remove(fd_.get(), this);
}

Result<std::string> Listener::open(const SocketAddress& local) {
  Result<Fd> opened = open_listener(local);
  if (!opened.is_ok()) return opened.status();
  fd_ = opened.take();
  choose_congestion_control(fd_.get(), true);  // the owner changes it for an accepted peer that is not near
  HDT_RETURN_IF_ERROR(loop_.add(fd_.get(), this, EPOLLIN));
  return local_address_of(fd_.get());
}

void Listener::on_event(uint32_t) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    Fd accepted(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.valid()) {
      on_accept_(std::move(accepted));
      continue;
    }
    const int error = errno;
    if (error == EINTR || error == ECONNABORTED) continue;  // the peer has gone again: the next one
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    // As a rule, the cause is a limit of descriptors. The spare one makes room to accept and refuse this
    // peer.
    UniqueFd refused = spare_.accept_instead(fd_.get(), error);
    if (!refused.valid()) {
      // The deadline comes first, as setting it may throw: without a deadline nothing would be accepted any
      // more.
      loop_.set_deadline(this, kPauseMs);
      loop_.modify(fd_.get(), this, 0);
      return;
    }
    turn_away(std::move(refused));
    spare_.restore();
  }
}

// The pause is over: another try to get the reserve back, and the listener is watched again in any case.
void Listener::on_deadline() {
  spare_.restore();
  loop_.modify(fd_.get(), this, EPOLLIN);
}

// The bytes are few and the socket is fresh, so one send() takes them. `refused` is closed at the end.
void Listener::turn_away(UniqueFd refused) {
  if (refusal_ == nullptr) return;
  const std::vector<std::byte> words = refusal_();
  (void)::send(refused.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace hdt::transport::tcp
