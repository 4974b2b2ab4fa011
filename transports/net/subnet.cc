// subnet.cc: compares addresses bit by bit (see subnet.h).
#include "transports/net/subnet.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace hdt::transport {

namespace {

// The prefixes that most networks use, for devices whose prefix length is unknown.
constexpr uint32_t kGuessedPrefixV4 = 24;
constexpr uint32_t kGuessedPrefixV6 = 64;

constexpr uint8_t kLoopbackV4 = 127;  // 127.0.0.0/8

// All of 127.0.0.0/8, but of IPv6 ::1 alone.
bool is_loopback(const NumericAddress& address) {
  if (!address.is_v6) return address.bytes[0] == kLoopbackV4;
  return std::memcmp(address.bytes.data(), &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

}  // namespace

std::optional<NumericAddress> parse_numeric(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  // inet_pton() accepts complete addresses only, and leaves the bytes alone if it fails.
  NumericAddress address;
  if (::inet_pton(AF_INET, host.c_str(), address.bytes.data()) == 1) return address;
  address.is_v6 = true;
  if (::inet_pton(AF_INET6, host.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

Result<OwnAddresses> OwnAddresses::now() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return Status::from_errno("cannot list the addresses of this host", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  OwnAddresses own;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    // Entries without an address, and those of other families (link layer), are left out.
    if (entry->ifa_addr == nullptr) continue;
    NumericAddress address;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto& ip = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
      std::memcpy(address.bytes.data(), &ip, sizeof ip);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto& ip = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      address.is_v6 = true;
      std::memcpy(address.bytes.data(), &ip, sizeof ip);
    } else {
      continue;
    }
    own.addresses_.push_back(address);
  }
  return own;
}

OwnAddresses::OwnAddresses(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    if (const auto address = parse_numeric(host)) addresses_.push_back(*address);
  }
}

bool OwnAddresses::has(const std::string& host) const {
  const auto address = parse_numeric(host);
  if (!address) return false;
  return is_loopback(*address) ||
         std::find(addresses_.begin(), addresses_.end(), *address) != addresses_.end();
}

bool in_subnet(const DeviceInfo& device, const std::string& host) {
  const auto ours = parse_numeric(device.address);
  const auto theirs = parse_numeric(host);
  if (!ours || !theirs || ours->is_v6 != theirs->is_v6) return false;
  // Compares the first `left` bits, a byte at a time.
  uint32_t left = device.prefix_bits != 0 ? device.prefix_bits
                  : ours->is_v6           ? kGuessedPrefixV6
                                          : kGuessedPrefixV4;
  for (size_t i = 0; left > 0 && i < ours->bytes.size(); ++i) {
    // The XOR has a bit wherever the two differ; the shift drops those behind the prefix.
    const uint32_t bits = std::min<uint32_t>(left, 8);
    if (((ours->bytes[i] ^ theirs->bytes[i]) >> (8 - bits)) != 0) return false;
    left -= bits;
  }
  return true;
}

}  // namespace hdt::transport
