// free_port.h: a TCP port of 127.0.0.1 at which nobody listens, nor at the one behind it, where HDT meets
// beside torch. Not one of those that the system gives to connections, which could take it at any moment.
// Another program may still take it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <stdexcept>

namespace hdt {

inline bool nobody_listens(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  const bool free = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(probe);
  return free;
}

inline int free_port() {
  constexpr int kTries = 100;
  std::random_device random;
  std::uniform_int_distribution<int> ports(20'000, 32'000);
  for (int i = 0; i < kTries; ++i) {
    const int port = ports(random);
    if (nobody_listens(port) && nobody_listens(port + 1)) return port;
  }
  throw std::runtime_error("no free port");
}

}  // namespace hdt
