// Confinement to this host, and who a peer on it is.
#include "daemon/links/own_host.h"

#include <unistd.h>

#include <algorithm>

#include "base/address.h"
#include "base/socket_owner.h"
#include "base/users.h"
#include "transports/net/subnet.h"

namespace hdt::daemon {

namespace {

constexpr const char* kLoopback = "127.0.0.1";

// The configuration lists addresses, and all of them are loopback addresses.
bool is_own(const Config& config) {
  const auto& addresses = config.nics.addresses;
  return !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), is_loopback);
}

// The configuration on loopback: its loopback addresses, or 127.0.0.1; and every class on tcp over them.
Config on_loopback(Config config) {
  std::erase_if(config.nics.addresses, [](const std::string& address) { return !is_loopback(address); });
  if (config.nics.addresses.empty()) config.nics.addresses = {kLoopback};
  for (auto& [name, policy] : config.classes) {
    policy.nics = {"*"};
    if (policy.backends != std::vector<std::string>{kSharedMemory}) policy.backends = {kTcp};
  }
  return config;
}

}  // namespace

// OwnAddresses without an argument knows the loopback addresses and no others.
bool is_loopback(const std::string& host) { return transport::OwnAddresses().has(host); }

// False for an empty list: it leads nowhere, and not to this host.
bool all_loopback(const std::string& addresses) {
  const auto all = addresses_in(DaemonAddress::parse(addresses).addresses);
  return !all.empty() && std::all_of(all.begin(), all.end(), [](const std::string& address) {
    return is_loopback(host_of(address));
  });
}

// A plan whose NICs are all within the host is taken as it is. Otherwise the configuration is reduced to
// loopback and tcp, which needs no module and no permission.
Result<BackendPlan> make_plan(const Config& config, std::vector<std::string> folders, bool own_host_only) {
  if (!own_host_only) return BackendPlan::make(config, std::move(folders));
  if (is_own(config)) {
    auto plan = BackendPlan::make(config, folders);
    if (!plan.is_ok()) return plan;
    // A class may name a NIC that [nics] does not select, and that other hosts can reach.
    const auto& nics = plan.value().nics();
    const auto is_inside = [](const BackendNic& nic) { return is_loopback(nic.info.address); };
    if (std::all_of(nics.begin(), nics.end(), is_inside)) return plan;
  }
  return BackendPlan::make(on_loopback(config), std::move(folders));
}

// Ranks that meet at an address of this host meet on loopback then, where no other machine can connect.
std::string within_host(const std::string& address) {
  const std::string host = host_of(address);
  if (is_loopback(host)) return address;
  // If the host's addresses cannot be asked for, the address stays as it is.
  const auto own = transport::OwnAddresses::now();
  if (!own.is_ok() || !own.value().has(host)) return address;
  return std::string(kLoopback) + ":" + std::to_string(port_of(address));
}

// The address of the peer decides whether it is on this host; then the owner of its socket decides. Where the
// owner cannot be found any more the peer has ended, so it is refused.
std::string foreign_peer(const transport::Connection& connection) {
  const std::string own = connection.local_address(), other = connection.remote_address();
  // Only a peer on this host has an owner that the kernel knows.
  if (!is_loopback(host_of(other))) {
    const auto addresses = transport::OwnAddresses::now();
    if (!addresses.is_ok() || !addresses.value().has(host_of(other))) return "";
  }
  const auto owner = owner_of_other_end(own, other);
  if (!owner) return "the process behind it has closed it";
  // The number that all users without one share in a user namespace is nobody's, also if it is our own
  // (base/users.h).
  if (*owner == 0 || is_this_user(*owner)) return "";
  return "it comes from a process of user " + std::to_string(*owner) +
         ", and without a cluster key only daemons of root and of user " + std::to_string(::geteuid()) +
         " are peers on this host";
}

// One text for all messages, so that an administrator finds the same instructions everywhere.
std::string how_to_have_peers() {
  return "to have peers on other hosts make a key with `hdtctl key new --output /etc/hdt/cluster.key`, copy "
         "it to every "
         "node, and write cluster_key_file = \"/etc/hdt/cluster.key\" under [security] in "
         "/etc/hdt/hdtcommd.toml there "
         "(or insecure = true, on a network that nobody else reaches)";
}

}  // namespace hdt::daemon
