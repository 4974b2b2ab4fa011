// Pairing of NICs, and the choice of this host's addresses.
#include "daemon/links/nics.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/address.h"
#include "base/log.h"
#include "transports/net/subnet.h"

namespace hdt::daemon {

namespace {

using Nics = std::vector<std::vector<size_t>>;  // by NIC: the indices of its addresses

// Loopback is no NIC, so each of its addresses counts as one. So does an address whose NIC has no name.
bool counts_alone(const std::string& name, const std::string& host) {
  return name.empty() || transport::OwnAddresses().has(host);
}

// Groups addresses by their NIC, in the order in which the NICs come first.
Nics by_nic(const std::vector<std::pair<std::string, std::string>>& names_and_hosts) {
  Nics nics;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < names_and_hosts.size(); ++i) {
    const auto& [name, host] = names_and_hosts[i];
    const auto [entry, is_new] = counts_alone(name, host) ? std::pair(known.end(), true)
                                                          : known.try_emplace(nic_of(name), nics.size());
    if (is_new) {
      nics.push_back({i});
    } else {
      nics[entry->second].push_back(i);
    }
  }
  return nics;
}

// The paths between two nodes, by what is known of them before they are tried.
class Ways {
 public:
  // Better ones first: in one subnet; over a router; an address that both hosts have; IPv4 with IPv6.
  enum class Kind : uint8_t { kNear, kFar, kNowhere, kImpossible };
  Ways(const std::vector<transport::DeviceInfo>& devices, const std::vector<RailEnd>& theirs,
       const transport::OwnAddresses& own)
      : devices_(devices) {
    for (const RailEnd& end : theirs) hosts_.push_back(host_of(end.address));
    // An address of theirs that is this host's own leads nowhere, unless all of theirs are: then the
    // daemon is on this host.
    const auto is_own = [&](const std::string& host) { return own.has(host); };
    const bool same_host = std::all_of(hosts_.begin(), hosts_.end(), is_own);
    const transport::OwnAddresses of_theirs(hosts_);
    for (const auto& device : devices) ours_nowhere_.push_back(!same_host && of_theirs.has(device.address));
    for (const std::string& host : hosts_) theirs_nowhere_.push_back(!same_host && own.has(host));
  }

  Kind kind(size_t i, size_t j) const {
    const auto ours = transport::parse_numeric(devices_[i].address);
    const auto theirs = transport::parse_numeric(hosts_[j]);
    if (ours && theirs && ours->is_v6 != theirs->is_v6) return Kind::kImpossible;
    if (ours_nowhere_[i] || theirs_nowhere_[j]) return Kind::kNowhere;
    return transport::in_subnet(devices_[i], hosts_[j]) ? Kind::kNear : Kind::kFar;
  }
  // The best pair of addresses of two NICs; the first of equals.
  std::pair<size_t, size_t> best(const std::vector<size_t>& ours, const std::vector<size_t>& theirs) const {
    std::pair<size_t, size_t> best{ours.front(), theirs.front()};
    for (const size_t i : ours) {
      for (const size_t j : theirs) {
        if (kind(i, j) < kind(best.first, best.second)) best = {i, j};
      }
    }
    return best;
  }
  // NICs all of whose addresses lead nowhere are paired with none.
  void drop_those_that_lead_nowhere(Nics& ours, Nics& theirs) const {
    const auto all = [](const std::vector<size_t>& nic, const std::vector<bool>& nowhere) {
      return std::all_of(nic.begin(), nic.end(), [&](size_t i) { return nowhere[i]; });
    };
    std::erase_if(ours, [&](const auto& nic) { return all(nic, ours_nowhere_); });
    std::erase_if(theirs, [&](const auto& nic) { return all(nic, theirs_nowhere_); });
  }

 private:
  const std::vector<transport::DeviceInfo>& devices_;
  std::vector<std::string> hosts_;
  // by index of the device and of the end: its address leads nowhere
  std::vector<bool> ours_nowhere_, theirs_nowhere_;
};

// Further addresses are those of services behind a load balancer; some hosts have hundreds.
constexpr size_t kMostAddressesOfNic = 4;

// Addresses that come last among those of a NIC: IPv4 addresses that it gave itself (link-local, RFC
// 3927), and addresses with the prefix of a single host, which belong to load balancers and local
// services.
bool is_makeshift(const transport::DeviceInfo& info) {
  const auto address = transport::parse_numeric(info.address);
  if (!address) return false;
  if (address->is_v6) return info.prefix_bits == 128;
  return info.prefix_bits == 32 || (address->bytes[0] == 169 && address->bytes[1] == 254);
}

}  // namespace

// An alias such as "eth0:1" is another address of the same NIC.
std::string nic_of(const std::string& interface) { return interface.substr(0, interface.find(':')); }

// Both ends of a link compute pairs, but only the dialer uses its own; so the two need not come to the same.
RailPlan pair_nics(const std::vector<transport::DeviceInfo>& devices, const std::vector<RailEnd>& theirs,
                   const transport::OwnAddresses& own) {
  RailPlan plan;
  const Ways ways(devices, theirs, own);
  // 1. The NICs of both sides, without those that lead nowhere.
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& device : devices) names.emplace_back(device.name, device.address);
  Nics ours = by_nic(names);
  names.clear();
  for (const RailEnd& end : theirs) names.emplace_back(end.nic, host_of(end.address));
  Nics others = by_nic(names);
  ways.drop_those_that_lead_nowhere(ours, others);
  // 2. Each NIC of the side with more gets the best NIC of the other side: first by what is known of the
  //    path, then by how often that NIC is used already, then by position, so that equal NICs are paired
  //    in order.
  const bool ours_are_more = ours.size() >= others.size();
  const size_t more = std::max(ours.size(), others.size());
  const size_t fewer = std::min(ours.size(), others.size());
  std::vector<size_t> used(fewer);
  for (size_t i = 0; i < more && fewer > 0; ++i) {
    const auto pair = [&](size_t j) {
      return ways.best(ours[ours_are_more ? i : j], others[ours_are_more ? j : i]);
    };
    const auto kind = [&](size_t j) { return ways.kind(pair(j).first, pair(j).second); };
    const auto cost = [&](size_t j) { return std::tuple(kind(j), used[j], (j + fewer - i % fewer) % fewer); };
    size_t best = 0;
    for (size_t j = 1; j < fewer; ++j) {
      if (cost(j) < cost(best)) best = j;
    }
    // Nothing but what leads nowhere is left for this NIC.
    if (kind(best) > Ways::Kind::kFar) continue;
    ++used[best];
    plan.rails.push_back(pair(best));
  }
  // 3. Everything else is a spare, the likeliest first.
  for (const Ways::Kind kind : {Ways::Kind::kNear, Ways::Kind::kFar, Ways::Kind::kNowhere}) {
    for (size_t i = 0; i < devices.size(); ++i) {
      for (size_t j = 0; j < theirs.size(); ++j) {
        if (ways.kind(i, j) != kind || plan.rails.size() + plan.spares.size() >= kMostPaths) continue;
        if (std::find(plan.rails.begin(), plan.rails.end(), std::pair(i, j)) == plan.rails.end())
          plan.spares.emplace_back(i, j);
      }
    }
  }
  // 4. If nothing could be paired, the spares are all there is to dial.
  if (plan.rails.empty()) std::swap(plan.rails, plan.spares);
  return plan;
}

namespace {

// A daemon may start before its host's NICs have a carrier. An address that can be bound works as soon
// as there is one. With the loopback interface alone the node could be reached by nobody until the
// daemon is started again.
void add_those_without_carrier(const Config::Nics& config, const std::vector<transport::DeviceInfo>& found,
                               transport::Backend& backend,
                               std::map<std::string, std::vector<transport::DeviceInfo>>& by_name) {
  for (transport::DeviceInfo info : found) {
    if (!nic_selected(config, info.name) || !backend.open(info).is_ok()) continue;
    HDT_LOG_WARN("NIC {} ({}) has no carrier yet: it is used as soon as it has one", info.name, info.address);
    by_name[nic_of(info.name)].push_back(info);
  }
}

}  // namespace

// The order matters: a daemon is met at its addresses in this order, so the first addresses are
// those of different NICs, and a NIC that is down costs one attempt.
Result<std::vector<transport::DeviceInfo>> select_nics(const Config::Nics& config,
                                                       transport::Backend& backend) {
  auto found = backend.discover();
  if (!found.is_ok()) return found.status();
  std::vector<transport::DeviceInfo> chosen;
  // 1. NICs that the configuration lists are used, also if discovery has not found them.
  for (const std::string& address : config.addresses) {
    const auto nic = std::find_if(found.value().begin(), found.value().end(),
                                  [&](const transport::DeviceInfo& info) { return info.address == address; });
    transport::DeviceInfo info;
    if (nic != found.value().end()) {
      info = *nic;
    } else {
      info.name = address.starts_with("127.") ? "lo" : address;
      info.up = true;
    }
    info.address = address;
    chosen.push_back(info);
  }
  if (!chosen.empty()) return chosen;
  // 2. The NICs that are up and selected, or if there are none, those that only lack a carrier.
  std::map<std::string, std::vector<transport::DeviceInfo>> by_name;
  for (const transport::DeviceInfo& info : found.value()) {
    if (info.up && nic_selected(config, info.name)) by_name[nic_of(info.name)].push_back(info);
  }
  if (by_name.empty()) add_those_without_carrier(config, found.value(), backend, by_name);
  // 3. The addresses of each NIC, makeshift ones last, and no more than kMostAddressesOfNic.
  size_t most = 0;
  for (auto& [name, addresses] : by_name) {
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const auto& info) { return !is_makeshift(info); });
    for (size_t i = kMostAddressesOfNic; i < addresses.size(); ++i) {
      HDT_LOG_WARN("NIC {} has {} addresses; {} is not used (nics.addresses says which ones are)", name,
                   addresses.size(), addresses[i].address);
    }
    most = std::max(most, std::min(addresses.size(), kMostAddressesOfNic));
  }
  // 4. The first addresses of all NICs, then the second ones, and so on.
  for (size_t turn = 0; turn < most; ++turn) {
    std::set<std::string> seen;  // NICs in the system's order
    for (const transport::DeviceInfo& info : found.value()) {
      const auto nic = by_name.find(nic_of(info.name));
      if (nic == by_name.end() || !seen.insert(nic->first).second || turn >= nic->second.size()) continue;
      chosen.push_back(nic->second[turn]);
    }
  }
  if (!chosen.empty()) return chosen;
  // 5. The loopback address.
  HDT_LOG_WARN(
      "no NIC is up and selected by nics.use and nics.exclude: only this machine can be reached (127.0.0.1)");
  transport::DeviceInfo loopback;
  loopback.name = "lo";
  loopback.address = "127.0.0.1";
  loopback.up = true;
  return std::vector{loopback};
}

}  // namespace hdt::daemon
