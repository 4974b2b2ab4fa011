// socket_address.h: numeric addresses: text "127.0.1.1:4000" or "[fe80::1]:4000" <-> sockaddr.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace hdt::transport::tcp {

class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t bytes);
  // A numeric host without a port, e.g. DeviceInfo::address.
  static Result<SocketAddress> from_host(const std::string& host, uint16_t port);
  static Result<SocketAddress> parse(const std::string& text);
  // One that can be connected to from `local`: of the same family.
  static Result<SocketAddress> parse_remote(const std::string& text, const SocketAddress& local);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  int family() const { return storage_.ss_family; }
  // 127.0.0.0/8 or ::1: traffic that never leaves the node.
  bool is_loopback() const;
  std::string host() const;
  std::string to_string() const;

 private:
  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

// The addresses of a socket, "" where it has none.
std::string local_address_of(int fd);
std::string remote_address_of(int fd);

}  // namespace hdt::transport::tcp
