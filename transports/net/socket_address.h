// socket_address.h: numeric addresses of IPv4 and IPv6, as text ("127.0.1.1:4000", "[fe80::1]:4000") and as
// sockaddr. Names are never resolved, as that would block.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace hdt::transport::tcp {

// A value: host and port. The default one has no family, and is_loopback() of it is false.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t bytes);
  // From a numeric host without a port, such as DeviceInfo::address. kInvalidArgument for anything else.
  static Result<SocketAddress> from_host(const std::string& host, uint16_t port);
  // From "host:port" or "[host]:port". kInvalidArgument for anything else, and for port 0.
  static Result<SocketAddress> parse(const std::string& text);
  // The same, and kInvalidArgument for an address that cannot be connected to from `local`, because one is
  // IPv4 and the other IPv6.
  static Result<SocketAddress> parse_remote(const std::string& text, const SocketAddress& local);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  int family() const { return storage_.ss_family; }
  // True for 127.0.0.0/8 and ::1, whose traffic never leaves the node.
  bool is_loopback() const;
  std::string host() const;       // without the port and without brackets
  std::string to_string() const;  // as parse() takes it

 private:
  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

// The two addresses of a socket, as to_string() writes them. "": it has none, for example because it is not
// connected.
std::string local_address_of(int fd);
std::string remote_address_of(int fd);

}  // namespace hdt::transport::tcp
