// listener.h: the listening socket of a device.
#pragma once

#include <functional>
#include <string>

#include "base/spare_descriptor.h"
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
  void on_deadline() override;
  // While this process is at a limit: a peer is told so, and closed.
  void turn_away(UniqueFd refused);

  EventLoop& loop_;
  OnAccept on_accept_;
  Fd fd_;
  SpareDescriptor spare_;
};

}  // namespace hdt::transport::tcp
