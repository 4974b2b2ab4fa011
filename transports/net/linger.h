// linger.h: keeps sockets open for a moment after they were closed in order. Such a socket may still hold
// bytes that the peer has not read. If it is closed while input is unread, the kernel resets the connection
// and discards those bytes. So input is read and dropped until the peer closes too, for 1 s at most.
#pragma once

#include <memory>
#include <vector>

#include "transports/net/event_loop.h"

namespace hdt::transport::tcp {

// One per device, used on its thread; `loop` must outlive it. Its destructor closes all sockets at once.
class LingerSet {
 public:
  explicit LingerSet(EventLoop& loop);
  LingerSet(const LingerSet&) = delete;
  LingerSet& operator=(const LingerSet&) = delete;
  ~LingerSet();
  // Sends the end of this direction (shutdown) and keeps the socket. `fd` must not be watched by the loop any
  // more. If it cannot be watched, or is not connected, it is closed at once.
  void add(Fd fd);

 private:
  class Socket;
  void drop(Socket* socket);

  EventLoop& loop_;
  std::vector<std::unique_ptr<Socket>> sockets_;
};

}  // namespace hdt::transport::tcp
