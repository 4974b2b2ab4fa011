// listener.h: the listening socket of a device.
#pragma once

#include <functional>
#include <string>

#include "transports/tcp/event_loop.h"

namespace hdt::transport::tcp {

class Listener : private EventSource {
 public:
  using OnAccept = std::function<void(Fd)>;
  Listener(EventLoop& loop, OnAccept on_accept) : loop_(loop), on_accept_(std::move(on_accept)) {}
  ~Listener() override;
  // Returns the address it listens on.
  Result<std::string> open(const SocketAddress& local);

 private:
  void on_event(uint32_t epoll_events) override;
  void on_deadline() override {}

  EventLoop& loop_;
  OnAccept on_accept_;
  Fd fd_;
  Fd spare_;
};

}  // namespace hdt::transport::tcp
