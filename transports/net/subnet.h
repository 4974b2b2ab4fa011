// subnet.h: decides which addresses a NIC reaches without a router, and which addresses are this host's own.
// The daemon pairs NICs by it (daemon/links/nics.h). All functions take numeric addresses without a port and
// may be called on any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

#include "transports/transport.h"

namespace hdt::transport {

// True if `host` is in the subnet of the device. False for a text that is no address, or one of the other
// family. A device whose prefix length is unknown is taken to have a /24, or a /64 for IPv6.
bool in_subnet(const DeviceInfo& device, const std::string& host);

// An address in network byte order. IPv4 uses the first 4 bytes, and the rest is 0.
struct NumericAddress {
  bool is_v6 = false;
  std::array<uint8_t, 16> bytes{};
  bool operator==(const NumericAddress&) const = default;
};

// Parses "10.0.0.1", "fd00::1" or "[fd00::1]". Nothing for a text that is no address, or that has a zone.
std::optional<NumericAddress> parse_numeric(std::string host);

// The addresses of all interfaces of this host, or of its network namespace, whether HDT uses them or not. A
// snapshot: it does not follow later changes. Packets to one of these addresses never leave the host.
class OwnAddresses {
 public:
  // Asks the kernel. kSystem on failure.
  static Result<OwnAddresses> now();
  // Takes the given addresses; texts that are no address are left out. Without any, has() knows loopback
  // only.
  explicit OwnAddresses(const std::vector<std::string>& hosts = {});
  // True for each of the addresses and for every loopback address. False for a text that is no address.
  bool has(const std::string& host) const;

 private:
  std::vector<NumericAddress> addresses_;
};

}  // namespace hdt::transport
