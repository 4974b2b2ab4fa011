// subnet.h: which addresses a NIC reaches without a router.
#pragma once

#include <string>

#include "transports/transport.h"

namespace hdt::transport {

// Whether the numeric address, without a port, is in the subnet of the device; false for what is no address. Where the device does not
// say how large its subnet is: 256 addresses, of IPv6 a /64.
bool in_subnet(const DeviceInfo& device, const std::string& host);

}  // namespace hdt::transport
