// socket.h: sockets with their options.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"
#include "transports/net/socket_address.h"

struct tcp_info;  // of linux/tcp.h, which cannot be included beside netinet/tcp.h

namespace hdt::transport::tcp {

using Fd = UniqueFd;

// Non-blocking, bound to `local`, listening.
Result<Fd> open_listener(const SocketAddress& local);
// Non-blocking, with local host `local` (its port is chosen by the system when it connects).
Result<Fd> open_connector(const SocketAddress& local);
// Makes the socket use network device `name` (empty: the routing table decides), unless `remote` is an
// address of this node, which is reached over loopback whatever the device.
Status bind_to_device(int fd, const std::string& name, const SocketAddress& remote);
// No delay; a peer that takes nothing or answers nothing for kPeerTimeoutMs ends the connection.
Status set_connection_options(int fd);
inline constexpr int kPeerTimeoutMs = 10'000;

// How long an acknowledgement may take in the ordinary course, by TCP's own figures: the smoothed round-trip
// time and four times its deviation (RFC 6298, without the 200 ms that Linux waits at least). On a slow NIC
// with long queues it is several times 10 ms.
int64_t ordinary_round_ns(const tcp_info& info);

}  // namespace hdt::transport::tcp
