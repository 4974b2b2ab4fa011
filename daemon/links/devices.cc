// devices.cc: opening NICs, and which links they make possible.
#include "daemon/links/devices.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace hdt::daemon {

// Level-triggered: a descriptor that is not emptied reports again, so no event can be lost between two
// looks.
Status watch_descriptor(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return Status::ok();
  return Status::from_errno("watching a descriptor (the limit of a user is fs.epoll.max_user_watches)",
                            errno);
}

// Stops at the first NIC that fails and keeps those before it: devices are never closed, since links know
// them by their index.
Status Devices::open(const std::vector<BackendNic>& nics) {
  for (const BackendNic& nic : nics) HDT_RETURN_IF_ERROR(open_nic(nic));
  return Status::ok();
}

// Either all tables grow by one entry or none does, as the index in each of them names the same device.
Status Devices::open_nic(const BackendNic& nic) {
  const auto& [backend, info] = nic;
  // tcp names the NIC in its messages; of other backends it is added.
  const auto wrong = [&nic](const Status& why) {
    return Status(why.code(), nic.backend == kTcp ? why.message()
                                                  : "backend " + nic.backend + " on " + name_of(nic.info) +
                                                        ": " + why.message());
  };
  // 1. The backend, which is made with its first NIC.
  auto open = std::find_if(backends_.begin(), backends_.end(),
                           [&](const auto& known) { return known.name == nic.backend; });
  if (open == backends_.end()) {
    auto made = settings_.make_backend(backend);
    if (!made.is_ok()) return made.status();
    made.value()->limit_strangers(settings_.strangers);
    backends_.push_back({backend, made.take(), devices_.size()});
    open = backends_.end() - 1;
  }
  // 2. The device. A backend without any device is not kept.
  auto device = open->backend->open(info);
  auto address = device.is_ok() ? device.value()->listen(0) : Result<std::string>(device.status());
  if (!address.is_ok()) {
    if (open->first_device == devices_.size()) backends_.pop_back();
    return wrong(address.status());
  }
  // 3. All tables grow by the same device.
  const Status watched = watch_descriptor(epoll_, device.value()->event_fd());
  if (!watched.is_ok()) HDT_LOG_ERROR("{} {}", watched.message(), LogTag{.node = settings_.node_name});
  nics_.push_back(nic);
  ends_.push_back({backend, info.name, address.take()});
  backend_of_.push_back(static_cast<uint32_t>(open - backends_.begin()));
  devices_.push_back(device.take());
  return Status::ok();
}

// The pairs of devices that two nodes could connect, best first; the engine's own part of it is the devices
// that are open here.
std::vector<LinkCandidate> Devices::candidates(const NodeInfo& own, const NodeInfo& peer,
                                               bool own_is_first) const {
  std::vector<transport::DeviceInfo> devices;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < devices_.size(); ++i) {
    devices.push_back(nics_[i].info);
    addresses.push_back(ends_[i].address);
  }
  // Addresses come and go, so they are asked for now. Without them nothing is known to lead nowhere, and
  // everything is tried.
  auto host = transport::OwnAddresses::now();
  if (!host.is_ok()) HDT_LOG_WARN("{} {}", host.status().message(), LogTag{.node = settings_.node_name});
  return link_candidates(own, peer, own_is_first, settings_.index, devices, addresses,
                         host.is_ok() ? host.take() : transport::OwnAddresses());
}

}  // namespace hdt::daemon
