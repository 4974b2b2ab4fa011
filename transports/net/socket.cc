// socket.cc: opens sockets and sets their options (see socket.h).
#include "transports/net/socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/clock.h"

namespace hdt::transport::tcp {

namespace {

constexpr int kBacklog = 1024;  // connections that wait to be accepted; the kernel may have a lower limit
// The first keepalive probe is sent after 4 s without input, and further ones every 2 s.
constexpr int kKeepIdleSeconds = 4;
constexpr int kKeepIntervalSeconds = 2;
constexpr int kKeepProbes = 3;  // 4 + 3 * 2 s: together about kPeerTimeoutMs

// Names the option in its error, as most failures are a kernel that does not know it.
Status set_option(int fd, int level, int option, int value, const char* name) {
  if (::setsockopt(fd, level, option, &value, sizeof value) == 0) return Status::ok();
  return Status::from_errno(std::string("cannot set socket option ") + name, errno);
}

Result<Fd> open_stream(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd.valid()) return Status::from_errno("cannot open a TCP socket", errno);
  return fd;
}

}  // namespace

Result<Fd> open_listener(const SocketAddress& local) {
  Result<Fd> opened = open_stream(local.family());
  if (!opened.is_ok()) return opened;
  Fd fd = opened.take();
  // A daemon that is started again must be able to take its port while connections of its predecessor are in
  // TIME_WAIT.
  HDT_RETURN_IF_ERROR(set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  if (::bind(fd.get(), local.get(), local.bytes()) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return Status::from_errno("cannot listen on " + local.to_string(), errno);
  }
  return fd;
}

Result<Fd> open_connector(const SocketAddress& local) {
  Result<Fd> opened = open_stream(local.family());
  if (!opened.is_ok()) return opened;
  Fd fd = opened.take();
  // With this option bind() takes no port. connect() then chooses one that is free for this pair of
  // addresses, so that many connections to different peers do not run out of ports.
  HDT_RETURN_IF_ERROR(
      set_option(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT"));
  HDT_RETURN_IF_ERROR(set_connection_options(fd.get()));
  if (::bind(fd.get(), local.get(), local.bytes()) != 0) {
    return Status::from_errno("cannot use local address " + local.host(), errno);
  }
  return fd;
}

Status bind_to_device(int fd, const std::string& name, const SocketAddress& remote) {
  if (name.empty()) return Status::ok();
  // Only an address of this node can be bound, so a socket that binds to the remote host shows that it is
  // one.
  Result<SocketAddress> host = SocketAddress::from_host(remote.host(), 0);
  if (!host.is_ok()) return host.status();
  if (open_connector(host.value()).is_ok()) return Status::ok();
  if (::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(), static_cast<socklen_t>(name.size())) == 0)
    return Status::ok();
  return Status::from_errno("cannot bind a socket to network device " + name +
                                " (bind_device = false leaves it to the routing table)",
                            errno);
}

// TCP_NODELAY: frames are assembled here, and a small one must not wait for the acknowledgement of the one
// before. TCP_USER_TIMEOUT bounds the time that sent data stays unacknowledged, and keepalive finds a peer
// that vanished while nothing was sent.
Status set_connection_options(int fd) {
  HDT_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  HDT_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kPeerTimeoutMs, "TCP_USER_TIMEOUT"));
  HDT_RETURN_IF_ERROR(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  HDT_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds, "TCP_KEEPIDLE"));
  HDT_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds, "TCP_KEEPINTVL"));
  return set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes, "TCP_KEEPCNT");
}

// The kernel gives both times in microseconds.
int64_t ordinary_round_ns(const tcp_info& info) {
  return (int64_t{info.tcpi_rtt} + 4 * int64_t{info.tcpi_rttvar}) * kNsPerUs;
}

}  // namespace hdt::transport::tcp
