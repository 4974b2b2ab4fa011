// subnet.cc: see subnet.h.
#include "transports/subnet.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <optional>

namespace hdt::transport {

namespace {

constexpr uint32_t kGuessedPrefixV4 = 24;
constexpr uint32_t kGuessedPrefixV6 = 64;

struct NumericAddress {
  bool is_v6 = false;
  std::array<uint8_t, 16> bytes{};
};

std::optional<NumericAddress> parse_host(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  NumericAddress address;
  if (::inet_pton(AF_INET, host.c_str(), address.bytes.data()) == 1) return address;
  address.is_v6 = true;
  if (::inet_pton(AF_INET6, host.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

}  // namespace

bool in_subnet(const DeviceInfo& device, const std::string& host) {
  const auto ours = parse_host(device.address);
  const auto theirs = parse_host(host);
  if (!ours || !theirs || ours->is_v6 != theirs->is_v6) return false;
  uint32_t left = device.prefix_bits != 0 ? device.prefix_bits
                  : ours->is_v6           ? kGuessedPrefixV6
                                          : kGuessedPrefixV4;
  for (size_t i = 0; left > 0 && i < ours->bytes.size(); ++i) {
    const uint32_t bits = std::min<uint32_t>(left, 8);
    if (((ours->bytes[i] ^ theirs->bytes[i]) >> (8 - bits)) != 0) return false;
    left -= bits;
  }
  return true;
}

}  // namespace hdt::transport
