// discovery.h: which addresses of this node belong to RDMA adapters, as rdma_cm sees it.
#pragma once

#include <string>
#include <vector>

#include "transports/net/socket_address.h"
#include "transports/rdma/verbs.h"
#include "transports/transport.h"

namespace hdt::transport::rdma {

struct AdapterPort {
  std::string device;  // "mlx5_0"
  uint8_t port = 1;
};

// kNoBackend if the address has no RDMA adapter, or if the node has no RDMA at all: the reason says which.
Result<AdapterPort> adapter_of(Verbs& verbs, const tcp::SocketAddress& local);

// Every address with an adapter. kNoBackend with the reason if there is none.
Result<std::vector<DeviceInfo>> find_devices(Verbs& verbs);

// Speed, MTU and state as the adapter tells them.
void read_port(Verbs& verbs, ibv_context* context, uint8_t port, DeviceInfo& info);

}  // namespace hdt::transport::rdma
