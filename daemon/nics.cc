#include "daemon/nics.h"

#include <algorithm>

#include "base/log.h"

namespace hdt::daemon {

Result<std::vector<transport::DeviceInfo>> select_nics(const Config::Nics& config, transport::Backend& backend) {
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
  HDT_LOG_WARN("no NIC is up and selected by nics.use and nics.exclude: only this machine can be reached (127.0.0.1)");
  transport::DeviceInfo loopback;
  loopback.name = "lo";
  loopback.address = "127.0.0.1";
  loopback.up = true;
  return std::vector{loopback};
}

}  // namespace hdt::daemon
