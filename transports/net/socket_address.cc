// socket_address.cc: converts addresses with getnameinfo() and getaddrinfo(), both restricted to numeric
// forms, so that neither asks a name server (see socket_address.h).
#include "transports/net/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstring>

namespace hdt::transport::tcp {

namespace {

// The output of getnameinfo(): two texts that end with a zero byte.
struct HostAndPort {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
};

// Both texts stay empty for an address of another family.
HostAndPort split(const sockaddr* address, socklen_t bytes) {
  HostAndPort text;
  ::getnameinfo(address, bytes, text.host.data(), text.host.size(), text.port.data(), text.port.size(),
                NI_NUMERICHOST | NI_NUMERICSERV);
  return text;
}

Status bad_address(const std::string& text) {
  return {Code::kInvalidArgument, "address '" + text +
                                      "': expected a numeric address and port, as 10.0.0.1:4000 "
                                      "or [fd00::1]:4000"};
}

}  // namespace

// sockaddr_storage is large enough for every family; the rest of it stays zero.
SocketAddress::SocketAddress(const sockaddr* address, socklen_t bytes) : bytes_(bytes) {
  std::memcpy(&storage_, address, bytes);
}

Result<SocketAddress> SocketAddress::from_host(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Status(Code::kInvalidArgument, "'" + host + "' is not a numeric IP address");
  }
  SocketAddress address(found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

Result<SocketAddress> SocketAddress::parse(const std::string& text) {
  // The last colon separates the port: an IPv6 host has colons itself.
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad_address(text);
  // Without the brackets; an IPv4 host has none.
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  // from_chars() takes digits only, and refuses numbers above 65535. Port 0 cannot be connected to.
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port == 0) return bad_address(text);
  Result<SocketAddress> address = from_host(host, port);
  if (!address.is_ok()) return bad_address(text);
  return address;
}

Result<SocketAddress> SocketAddress::parse_remote(const std::string& text, const SocketAddress& local) {
  Result<SocketAddress> remote = parse(text);
  if (remote.is_ok() && remote.value().family() != local.family()) {
    return Status(Code::kInvalidArgument,
                  "cannot connect from " + local.host() + " to " + text + ": one is IPv4, the other IPv6");
  }
  return remote;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == 127;
  }
  return family() == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

std::string SocketAddress::host() const { return split(get(), bytes_).host.data(); }

std::string SocketAddress::to_string() const {
  const HostAndPort text = split(get(), bytes_);
  const std::string name = text.host.data();
  return (family() == AF_INET6 ? "[" + name + "]" : name) + ":" + text.port.data();
}

std::string local_address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return "";
  return SocketAddress(reinterpret_cast<const sockaddr*>(&storage), bytes).to_string();
}

std::string remote_address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return "";
  return SocketAddress(reinterpret_cast<const sockaddr*>(&storage), bytes).to_string();
}

}  // namespace hdt::transport::tcp
