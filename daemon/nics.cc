#include "daemon/nics.h"

#include <algorithm>
#include <tuple>

#include "base/address.h"
#include "base/log.h"
#include "transports/subnet.h"

namespace hdt::daemon {

namespace {

bool same_subnet(const transport::DeviceInfo& device, const std::string& address) {
  return transport::in_subnet(device, host_of(address));
}

}  // namespace

std::vector<std::pair<size_t, size_t>> pair_nics(const std::vector<transport::DeviceInfo>& devices,
                                                 const std::vector<std::string>& addresses) {
  std::vector<std::pair<size_t, size_t>> pairs;
  if (devices.empty() || addresses.empty()) return pairs;
  const bool ours_are_more = devices.size() >= addresses.size();
  const size_t more = std::max(devices.size(), addresses.size());
  const size_t fewer = std::min(devices.size(), addresses.size());
  std::vector<size_t> used(fewer);
  for (size_t i = 0; i < more; ++i) {
    const auto cost = [&](size_t j) {
      const bool near = same_subnet(devices[ours_are_more ? i : j], addresses[ours_are_more ? j : i]);
      return std::tuple(!near, used[j], (j + fewer - i % fewer) % fewer);
    };
    size_t best = 0;
    for (size_t j = 1; j < fewer; ++j) {
      if (cost(j) < cost(best)) best = j;
    }
    ++used[best];
    pairs.emplace_back(ours_are_more ? i : best, ours_are_more ? best : i);
  }
  return pairs;
}

Result<std::vector<transport::DeviceInfo>> select_nics(const Config::Nics& config,
                                                       transport::Backend& backend) {
  auto found = backend.discover();
  if (!found.is_ok()) return found.status();
  std::vector<transport::DeviceInfo> chosen;
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
  for (const transport::DeviceInfo& info : found.value()) {
    if (info.up && nic_selected(config, info.name)) chosen.push_back(info);
  }
  if (!chosen.empty()) return chosen;
  HDT_LOG_WARN(
      "no NIC is up and selected by nics.use and nics.exclude: only this machine can be reached (127.0.0.1)");
  transport::DeviceInfo loopback;
  loopback.name = "lo";
  loopback.address = "127.0.0.1";
  loopback.up = true;
  return std::vector{loopback};
}

}  // namespace hdt::daemon
