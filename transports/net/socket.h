// socket.h: TCP sockets with the options that HDT's connections use. All functions return kSystem with the
// kernel's reason where it refuses.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"
#include "transports/net/socket_address.h"

struct tcp_info;  // of linux/tcp.h, which cannot be included beside netinet/tcp.h

namespace hdt::transport::tcp {

using Fd = UniqueFd;

// Non-blocking, bound to `local`, listening.
Result<Fd> open_listener(const SocketAddress& local);
// Non-blocking, bound to the host of `local`, with the options of set_connection_options(). The system
// chooses the port when the socket connects.
Result<Fd> open_connector(const SocketAddress& local);
// Makes the socket use the network device `name`; with an empty name the routing table decides. No effect if
// `remote` is an address of this node, which is reached over loopback whatever the device.
Status bind_to_device(int fd, const std::string& name, const SocketAddress& remote);
// Sets TCP_NODELAY, keepalive and TCP_USER_TIMEOUT. A peer that takes nothing, or that does not answer, for
// kPeerTimeoutMs ends the connection.
Status set_connection_options(int fd);
inline constexpr int kPeerTimeoutMs = 10'000;

// How long an acknowledgement ordinarily takes at most, in ns, by TCP's own measurements: the smoothed
// round-trip time plus four times its deviation. That is the retransmission timeout of RFC 6298 without
// Linux's minimum of 200 ms. On a slow NIC with long queues it is several times 10 ms.
int64_t ordinary_round_ns(const tcp_info& info);

}  // namespace hdt::transport::tcp
