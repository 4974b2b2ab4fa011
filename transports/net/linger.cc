// linger.cc: see linger.h. A socket leaves when the peer has closed, on an error, or at its deadline.
#include "transports/net/linger.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "transports/net/attempt.h"

namespace hdt::transport::tcp {

namespace {
constexpr int64_t kLingerMs = 1000;
// 64 reads of 16 KiB, so that a peer that goes on sending does not hold up the thread; the rest is read at
// the next event.
constexpr int kReadsPerEvent = 64;
}  // namespace

// One socket that lingers. It is an EventSource of its own, so that its owner's connection can be freed at
// once.
class LingerSet::Socket : public EventSource {
 public:
  Socket(LingerSet& owner, Fd fd) : owner_(owner), fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }

  void on_event(uint32_t) override {
    std::array<std::byte, 16 << 10> dropped;
    for (int i = 0; i < kReadsPerEvent; ++i) {
      const ssize_t n = ::recv(fd_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
      if (n > 0 || (n < 0 && errno == EINTR)) continue;
      // 0 is the peer's end; any other error means that nothing more can be read or sent.
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      owner_.drop(this);  // destroys this
      return;
    }
  }

  // Both destroy this.
  void on_deadline() override { owner_.drop(this); }
  void on_failure() override { owner_.drop(this); }

 private:
  LingerSet& owner_;
  Fd fd_;
};

LingerSet::LingerSet(EventLoop& loop) : loop_(loop) {}

LingerSet::~LingerSet() {
  while (!sockets_.empty()) drop(sockets_.back().get());
}

void LingerSet::add(Fd fd) {
  if (::shutdown(fd.get(), SHUT_WR) != 0) return;
  sockets_.push_back(std::make_unique<Socket>(*this, std::move(fd)));
  Socket* const socket = sockets_.back().get();
  bool watched = false;
  // Without a deadline the socket could stay for ever, so a failure to set one drops it. drop() also takes it
  // out of the loop, which must not call a socket that is gone.
  (void)attempt(
      [&] {
        watched = loop_.add(socket->fd(), socket, EPOLLIN).is_ok();
        if (watched) loop_.set_deadline(socket, kLingerMs);
      },
      [&] { watched = false; });
  if (!watched) drop(socket);
}

void LingerSet::drop(Socket* socket) {
  loop_.remove(socket->fd(), socket);
  std::erase_if(sockets_, [socket](const auto& held) { return held.get() == socket; });
}

}  // namespace hdt::transport::tcp
