// interfaces.h: the network interfaces of this node.
#pragma once

#include <vector>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

// One entry per IPv4 address; per global IPv6 address where an interface has no IPv4 one. Those that are
// deprecated, temporary or tentative only where it has no others, one of them; none that another host has.
Result<std::vector<DeviceInfo>> list_interfaces();

}  // namespace hdt::transport::tcp
