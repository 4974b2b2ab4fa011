// devices.h: the NICs that an engine has open. There is one device for each NIC and backend; a device keeps
// its number for the engine's life, and devices are only added, when a class changes.
//
// Owner: Engine. open() is called first by the thread that starts the engine, and then, as all other
// functions, on the engine's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/links/backend_plan.h"
#include "daemon/links/link_choice.h"
#include "daemon/links/link_settings.h"
#include "transports/transport.h"

namespace hdt::daemon {

// Indexes of devices are part of what other parts keep: of paths, of rails and of the backends' tables. So
// a device that was opened is never closed nor moved.
class Devices {
 public:
  // `epoll`, the engine's, gets the event descriptor of each device. Both must outlive this object.
  Devices(const LinkSettings& settings, int epoll) : settings_(settings), epoll_(epoll) {}

  // Opens a device for each NIC, behind those that are open, and listens on it. Errors are those of the
  // backends; the devices before the one that failed stay open.
  Status open(const std::vector<BackendNic>& nics);

  size_t count() const { return devices_.size(); }
  transport::Device& at(size_t device) { return *devices_[device]; }
  // A region that is registered through one device is valid on all devices of its backend. This is the one
  // through which memory is registered.
  transport::Device& of_backend(uint32_t backend) { return at(backends_[backend].first_device); }
  // The number of the device's backend, and a backend's name.
  uint32_t backend_of(size_t device) const { return backend_of_[device]; }
  const std::string& backend_name(uint32_t backend) const { return backends_[backend].name; }
  // By device: its NIC, and where peers connect to.
  const std::vector<BackendNic>& nics() const { return nics_; }
  const std::vector<RailEnd>& ends() const { return ends_; }
  // The links that are possible between the two nodes with their present NICs and addresses, best first.
  // `own_is_first`: this node comes first in the group, so its order of backends counts at both ends.
  std::vector<LinkCandidate> candidates(const NodeInfo& own, const NodeInfo& peer, bool own_is_first) const;

 private:
  struct OpenBackend {
    std::string name;
    std::unique_ptr<transport::Backend> backend;
    size_t first_device = 0;
  };
  // Opens one NIC. The tables below grow together or not at all.
  Status open_nic(const BackendNic& nic);

  const LinkSettings& settings_;
  const int epoll_;
  std::vector<OpenBackend> backends_;
  // what follows is by device
  std::vector<std::unique_ptr<transport::Device>> devices_;
  std::vector<uint32_t> backend_of_;
  std::vector<BackendNic> nics_;
  std::vector<RailEnd> ends_;
};

// Adds a descriptor to an epoll set, for reading. kSystem: a limit.
Status watch_descriptor(int epoll, int fd);

}  // namespace hdt::daemon
