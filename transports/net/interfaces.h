// interfaces.h: the network interfaces of this node.
#pragma once

#include <vector>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

// One entry per IPv4 address. An interface without one has an entry per IPv6 address that is not link-local.
// Addresses that are deprecated, temporary or tentative count only if the interface has no other, and then
// one of them. An address that another host has (duplicate detection failed) never counts. Interfaces that
// are down are listed, with `up` false. kSystem if the kernel does not answer.
Result<std::vector<DeviceInfo>> list_interfaces();

}  // namespace hdt::transport::tcp
