// discovery.cc: asks rdma_cm and the adapters what there is; see discovery.h.
#include "transports/rdma/discovery.h"

#include <cerrno>

#include "transports/net/interfaces.h"

namespace hdt::transport::rdma {

namespace {

// Bits per second of one lane, by ibv_port_attr::active_speed: SDR, DDR, QDR and FDR10, FDR, EDR, HDR,
// NDR. 0: unknown.
uint64_t lane_speed(uint32_t code) {
  switch (code) {
    case 1:
      return 2'500'000'000;
    case 2:
      return 5'000'000'000;
    case 4:
    case 8:
      return 10'000'000'000;
    case 16:
      return 14'000'000'000;
    case 32:
      return 25'000'000'000;
    case 64:
      return 50'000'000'000;
    case 128:
      return 100'000'000'000;
    default:
      return 0;
  }
}

// The number of lanes, by ibv_port_attr::active_width. 0: unknown.
uint64_t lanes(uint8_t code) {
  switch (code) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

}  // namespace

// active_mtu is an exponent: IBV_MTU_256 is 1.
void read_port(Verbs& verbs, ibv_context* context, uint8_t port, DeviceInfo& info) {
  ibv_port_attr attributes{};
  info.up = verbs.query_port(context, port, attributes) == 0 && attributes.state == IBV_PORT_ACTIVE;
  if (!info.up) return;
  const uint64_t speed = lane_speed(attributes.active_speed) * lanes(attributes.active_width);
  if (speed > 0) info.bits_per_second = speed;
  info.mtu = 128u << attributes.active_mtu;
}

// Binds an id to the address, reads what rdma_cm has bound it to, and drops it. Without any RDMA device or
// without the kernel's module even the event channel cannot be made.
Result<AdapterPort> adapter_of(Verbs& verbs, const tcp::SocketAddress& local) {
  rdma_event_channel* const channel = verbs.create_event_channel();
  if (channel == nullptr) {
    const int error = errno;
    return Status(Code::kNoBackend,
                  Status::from_errno("this node has no RDMA: rdma_cm cannot be used (are there RDMA "
                                     "devices, is the module rdma_ucm loaded, may /dev/infiniband "
                                     "be opened?)",
                                     error)
                      .message());
  }
  AdapterPort found;
  int error = ENOMEM;
  rdma_cm_id* const id = verbs.create_id(channel, nullptr);
  if (id != nullptr) {
    error = verbs.bind(id, local.get());
    if (error == 0) {
      found.device = verbs.device_of(id);
      found.port = id->port_num;
    }
    verbs.destroy_id(id);
  }
  verbs.destroy_event_channel(channel);
  // An address without an adapter is refused, or bound without a device.
  if (error == ENODEV || (error == 0 && found.device.empty())) {
    return Status(Code::kNoBackend, "the address " + local.host() + " belongs to no RDMA device");
  }
  if (error != 0) return Status::from_errno("cannot use the address " + local.host() + " for RDMA", error);
  return found;
}

// 1. Lists the network interfaces and their addresses, as for tcp.
// 2. Keeps those that rdma_cm binds to an adapter which can be opened.
// 3. Replaces speed, MTU and state by the adapter's.
// If nothing is left, the latest reason is returned.
Result<std::vector<DeviceInfo>> find_devices(Verbs& verbs) {
  Result<std::vector<DeviceInfo>> interfaces = tcp::list_interfaces();
  if (!interfaces.is_ok()) return interfaces.status();
  std::vector<DeviceInfo> found;
  Status reason(Code::kNoBackend, "no address of this node belongs to an RDMA device");
  for (DeviceInfo info : interfaces.value()) {
    const Result<tcp::SocketAddress> local = tcp::SocketAddress::from_host(info.address, 0);
    if (!local.is_ok()) continue;
    const Result<AdapterPort> adapter = adapter_of(verbs, local.value());
    if (!adapter.is_ok()) {
      // The node has no RDMA at all: the other addresses will not have any either.
      if (adapter.status().message().rfind("this node", 0) == 0) return adapter.status();
      continue;
    }
    ibv_context* const context = verbs.open_device(adapter.value().device);
    if (context == nullptr) {
      reason = Status(
          Code::kNoBackend,
          Status::from_errno("cannot open the RDMA device " + adapter.value().device, errno).message());
      continue;
    }
    read_port(verbs, context, adapter.value().port, info);
    verbs.close_device(context);
    found.push_back(std::move(info));
  }
  if (found.empty()) return reason;
  return found;
}

}  // namespace hdt::transport::rdma
