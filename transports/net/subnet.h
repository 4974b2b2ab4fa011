// subnet.h: which addresses a NIC reaches without a router, and which ones are this host's own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

#include "transports/transport.h"

namespace hdt::transport {

// Whether the numeric address, without a port, is in the subnet of the device; false for what is no address.
// Where the device does not say how large its subnet is: 256 addresses, of IPv6 a /64.
bool in_subnet(const DeviceInfo& device, const std::string& host);

struct NumericAddress {
  bool is_v6 = false;
  std::array<uint8_t, 16> bytes{};
  bool operator==(const NumericAddress&) const = default;
};

// "10.0.0.1", "fd00::1" or "[fd00::1]"; nothing for what is no address, or has a zone.
std::optional<NumericAddress> parse_numeric(std::string host);

// The addresses of all interfaces of this host (of its network namespace), whether HDT uses them or not, as
// they were when it was made. What is sent to one of them never leaves the host.
class OwnAddresses {
 public:
  static Result<OwnAddresses> now();
  explicit OwnAddresses(const std::vector<std::string>& hosts = {});
  // Also every loopback address. False for what is no address.
  bool has(const std::string& host) const;

 private:
  std::vector<NumericAddress> addresses_;
};

}  // namespace hdt::transport
