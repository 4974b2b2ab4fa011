// listener.h: the listening socket of a device.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/spare_descriptor.h"
#include "transports/net/event_loop.h"

namespace hdt::transport::tcp {

class Listener : private EventSource {
 public:
  using OnAccept = std::function<void(Fd)>;
  // What a peer hears, in the owner's protocol, that there is no descriptor for.
  using Refusal = std::function<std::vector<std::byte>()>;
  // Without a refusal such a peer's connection is closed without a word.
  Listener(EventLoop& loop, OnAccept on_accept, Refusal refusal)
      : loop_(loop), on_accept_(std::move(on_accept)), refusal_(std::move(refusal)) {}
  ~Listener() override;
  // Returns the address it listens on.
  Result<std::string> open(const SocketAddress& local);

 private:
  void on_event(uint32_t epoll_events) override;
  void on_deadline() override;
  // While this process is at a limit: a peer is told so, if its protocol has words for it, and closed.
  void turn_away(UniqueFd refused);

  EventLoop& loop_;
  OnAccept on_accept_;
  Refusal refusal_;
  Fd fd_;
  SpareDescriptor spare_;
};

}  // namespace hdt::transport::tcp
