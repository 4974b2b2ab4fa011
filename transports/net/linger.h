// linger.h: sockets that were closed in order but may still hold bytes the peer has not read. Closing such a
// socket while input is unread would make the kernel discard those bytes; so input is dropped until the peer
// closes too, or for kLingerMs at most.
#pragma once

#include <memory>
#include <vector>

#include "transports/net/event_loop.h"

namespace hdt::transport::tcp {

class LingerSet {
 public:
  explicit LingerSet(EventLoop& loop);
  LingerSet(const LingerSet&) = delete;
  LingerSet& operator=(const LingerSet&) = delete;
  ~LingerSet();
  // `fd` must not be watched by the loop any more.
  void add(Fd fd);

 private:
  class Socket;
  void drop(Socket* socket);

  EventLoop& loop_;
  std::vector<std::unique_ptr<Socket>> sockets_;
};

}  // namespace hdt::transport::tcp
