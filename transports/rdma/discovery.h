// discovery.h: which addresses of this node belong to RDMA adapters. rdma_cm is asked, because it also
// decides later which adapter a connection from that address uses.
#pragma once

#include <string>
#include <vector>

#include "transports/net/socket_address.h"
#include "transports/rdma/verbs.h"
#include "transports/transport.h"

namespace hdt::transport::rdma {

// An adapter and one of its ports.
struct AdapterPort {
  std::string device;  // "mlx5_0"
  uint8_t port = 1;    // from 1
};

// The adapter of a local address. kNoBackend if the address has none, or if the node has no RDMA at all;
// the text says which. kSystem for any other reason.
Result<AdapterPort> adapter_of(Verbs& verbs, const tcp::SocketAddress& local);

// Every address of the node that has an adapter. kNoBackend with the reason if there is none: `hdtctl
// backends` shows it.
Result<std::vector<DeviceInfo>> find_devices(Verbs& verbs);

// Sets speed (bits per second), MTU (bytes) and state in `info`, as the adapter reports them. A field that
// the adapter does not report stays as it is.
void read_port(Verbs& verbs, ibv_context* context, uint8_t port, DeviceInfo& info);

}  // namespace hdt::transport::rdma
