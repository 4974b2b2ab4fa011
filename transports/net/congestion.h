// congestion.h: chooses the congestion control of TCP connections.
//
// BBR, the default of many systems, paces what is sent by its own estimate of the rate. HDT itself bounds
// what is under way on every NIC. Held back by that bound, BBR's estimate falls until nothing leaves the
// connection for 20 ms and more (docs/design/classes.md). Between addresses of one node, calls of 64 KiB to
// 8 MiB are up to 5 times slower with BBR (docs/design/performance.md). So connections within a node or a
// subnet use Reno where the system's default is BBR. Reno is part of every kernel and open to every user.
// Any other default stays, and so does BBR over routers.
#pragma once

#include "transports/net/socket_address.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

// True if the peer is reached without a router: over loopback, or in the subnet of the NIC. A NIC whose
// subnet is unknown has no near peers.
bool is_near(const DeviceInfo& nic, const SocketAddress& peer);

// Sets it for a socket that is not connected yet, for a listener (accepted sockets inherit it), or for an
// accepted socket whose peer turns out not to be near. If the system refuses, the socket keeps what it has.
void choose_congestion_control(int fd, bool near);

}  // namespace hdt::transport::tcp
