// free_port.h: a TCP port of 127.0.0.1 at which nobody listens. Another program may take it at any time.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace hdt {

inline int free_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  const bool known = ::bind(probe, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(probe);
  if (!known) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

}  // namespace hdt
