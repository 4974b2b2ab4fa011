// listener.h: the listening socket of a device. It accepts connections and hands them to the device; at a
// limit of descriptors it turns peers away with a reason.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/spare_descriptor.h"
#include "transports/net/event_loop.h"

namespace hdt::transport::tcp {

// Owned by its device and used on the device's thread; `loop` must outlive it.
class Listener : private EventSource {
 public:
  // Takes an accepted socket, which is non-blocking.
  using OnAccept = std::function<void(Fd)>;
  // Makes the bytes, in the owner's protocol, that are sent to a peer for which there is no descriptor.
  using Refusal = std::function<std::vector<std::byte>()>;
  // Without a `refusal` such a peer's connection is closed and nothing is sent.
  Listener(EventLoop& loop, OnAccept on_accept, Refusal refusal)
      : loop_(loop), on_accept_(std::move(on_accept)), refusal_(std::move(refusal)) {}
  ~Listener() override;
  // Begins to listen on `local`, whose port may be 0. Returns the address with the port. kSystem on failure.
  Result<std::string> open(const SocketAddress& local);

 private:
  void on_event(uint32_t epoll_events) override;
  void on_deadline() override;
  // Sends the refusal to a peer that was accepted at a limit of descriptors, and closes its connection.
  void turn_away(UniqueFd refused);

  EventLoop& loop_;
  OnAccept on_accept_;
  Refusal refusal_;
  Fd fd_;
  SpareDescriptor spare_;
};

}  // namespace hdt::transport::tcp
