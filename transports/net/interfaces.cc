// interfaces.cc: lists the addresses of this node's NICs (see interfaces.h). The sources are getifaddrs() for
// addresses and prefixes, /sys/class/net for speed, MTU and NUMA node, and /proc/net/if_inet6 for the state
// of IPv6 addresses.
#include "transports/net/interfaces.h"

#include <ifaddrs.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netinet/in.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "transports/net/socket_address.h"

namespace hdt::transport::tcp {

namespace {

// The number in a file of /sys, or nothing where there is no such file.
std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The length of the prefix: how many bits of the mask are set. 0: there is no mask.
uint32_t prefix_bits_of(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  uint32_t bits = 0;
  if (mask->sa_family == AF_INET6) {
    for (const uint8_t byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr)
      bits += std::popcount(byte);
  } else {
    bits = static_cast<uint32_t>(std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr));
  }
  return bits;
}

// Describes the NIC that an address belongs to. Each field that cannot be read keeps the value for
// "unknown".
DeviceInfo describe(const ifaddrs& entry, const SocketAddress& address) {
  DeviceInfo info;
  info.name = entry.ifa_name;
  info.address = address.host();
  info.up = (entry.ifa_flags & IFF_UP) != 0 && (entry.ifa_flags & IFF_RUNNING) != 0;
  info.prefix_bits = prefix_bits_of(entry.ifa_netmask);
  const std::string folder = "/sys/class/net/" + info.name;
  // The speed is in Mbit/s. Virtual interfaces report -1, or reading fails; both mean that it is not known.
  const int64_t megabits = read_number(folder + "/speed").value_or(0);
  if (megabits > 0) info.bits_per_second = static_cast<uint64_t>(megabits) * 1'000'000;
  info.mtu = static_cast<uint32_t>(read_number(folder + "/mtu").value_or(0));
  return info;
}

// A link-local address is valid only together with a zone, whose name is local to one host, so that peers
// cannot connect to it.
bool is_global(const sockaddr* address) {
  const in6_addr& bits = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return !IN6_IS_ADDR_LINKLOCAL(&bits);
}

// The flags of IPv6 addresses (IFA_F_* of linux/if_addr.h), which getifaddrs() does not give, by NIC and
// address. Each line of the file has 32 hexadecimal digits, then index, prefix, scope and flags in
// hexadecimal, then the NIC's name.
std::map<std::pair<std::string, std::string>, uint32_t> ipv6_flags() {
  std::map<std::pair<std::string, std::string>, uint32_t> all;
  std::ifstream file("/proc/net/if_inet6");
  std::string digits, name;
  uint32_t index = 0, prefix = 0, scope = 0, flags = 0;
  while (file >> digits >> std::hex >> index >> prefix >> scope >> flags >> name) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    // Two digits a byte. The text is converted to the form that host() writes, so that the keys can be
    // compared.
    if (digits.size() != 2 * sizeof address.sin6_addr.s6_addr) continue;
    for (size_t i = 0; i < sizeof address.sin6_addr.s6_addr; ++i) {
      address.sin6_addr.s6_addr[i] =
          static_cast<uint8_t>(std::strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
    }
    all[{name, SocketAddress(reinterpret_cast<const sockaddr*>(&address), sizeof address).host()}] = flags;
  }
  return all;
}

// Addresses that are about to go, that change every day, or that are not usable yet.
constexpr uint32_t kMakeshift = IFA_F_DEPRECATED | IFA_F_TEMPORARY | IFA_F_TENTATIVE;

}  // namespace

Result<std::vector<DeviceInfo>> list_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return Status::from_errno("cannot list network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);

  // 1. All IPv4 addresses.
  // 2. IPv6 addresses of NICs without IPv4; those that do not last are put aside.
  // 3. One of those put aside for each NIC that would have none.
  std::vector<DeviceInfo> devices;
  std::set<std::string> with_ipv4, with_lasting;
  std::vector<DeviceInfo> makeshift;
  const auto flags = ipv6_flags();
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    with_ipv4.insert(entry->ifa_name);
    devices.push_back(describe(*entry, SocketAddress(entry->ifa_addr, sizeof(sockaddr_in))));
  }
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET6) continue;
    if (with_ipv4.count(entry->ifa_name) > 0 || !is_global(entry->ifa_addr)) continue;
    DeviceInfo info = describe(*entry, SocketAddress(entry->ifa_addr, sizeof(sockaddr_in6)));
    const auto found = flags.find({info.name, info.address});
    const uint32_t state = found == flags.end() ? 0 : found->second;
    if ((state & IFA_F_DADFAILED) != 0) continue;  // another host has it
    if ((state & kMakeshift) == 0) {
      with_lasting.insert(info.name);
      devices.push_back(std::move(info));
    } else {
      makeshift.push_back(std::move(info));
    }
  }
  // insert() says whether the NIC had none yet, so that the first of its addresses counts and no other.
  for (DeviceInfo& info : makeshift) {
    if (with_lasting.insert(info.name).second) devices.push_back(std::move(info));
  }
  return devices;
}

}  // namespace hdt::transport::tcp
