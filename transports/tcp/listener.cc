// listener.cc: see listener.h.
#include "transports/tcp/listener.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "transports/tcp/congestion.h"

namespace hdt::transport::tcp {

namespace {
constexpr int kAcceptsPerEvent = 64;

Fd open_spare() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
}  // namespace

Listener::~Listener() {
  if (fd_.valid()) loop_.remove(fd_.get(), this);
}

Result<std::string> Listener::open(const SocketAddress& local) {
  Result<Fd> opened = open_listener(local);
  if (!opened.is_ok()) return opened.status();
  fd_ = opened.take();
  choose_congestion_control(fd_.get(), true);  // whoever accepts one from afar changes it
  spare_ = open_spare();
  HDT_RETURN_IF_ERROR(loop_.add(fd_.get(), this, EPOLLIN));
  return local_address_of(fd_.get());
}

void Listener::on_event(uint32_t) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    Fd accepted(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.valid()) {
      on_accept_(std::move(accepted));
    } else if ((errno == EMFILE || errno == ENFILE) && spare_.valid()) {
      // Out of descriptors: a peer left waiting would keep this socket readable and the owner awake for ever.
      // Give up the spare one to take the peer off the queue and close it.
      spare_.reset();
      Fd refused(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      refused.reset();
      spare_ = open_spare();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

}  // namespace hdt::transport::tcp
