// congestion.h: which congestion control connections use.
//
// BBR, which many systems have as their default, paces what is sent by its own estimate of the rate. HDT
// bounds what is under way on every NIC itself; held back by that, BBR's estimate falls until for 20 ms and
// more nothing leaves the connection (docs/design/classes.md). And between addresses of one node it costs a
// third of the bandwidth (docs/design/performance.md). So connections within a node or a subnet use Reno
// where the system's default is BBR; it is part of every kernel and open to every user. Any other default
// stays, as does BBR over routers.
#pragma once

#include "transports/net/socket_address.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

// The peer is reached without a router.
bool is_near(const DeviceInfo& nic, const SocketAddress& peer);

// For a socket that is not connected yet, or that a listener for near peers has accepted: accepted sockets
// inherit it. Where the system refuses, its default does.
void choose_congestion_control(int fd, bool near);

}  // namespace hdt::transport::tcp
