#include "tools/hdt-backend-test/module_world.h"

#include <algorithm>
#include <stdexcept>

#include "transports/loader/loader.h"

namespace hdt::backend_test {

namespace {

using transport::Backend;
using transport::DeviceInfo;

Settings& settings() {
  static Settings held;
  return held;
}

std::vector<DeviceInfo>& nics() {
  static std::vector<DeviceInfo> held;
  return held;
}

Result<std::unique_ptr<Backend>> make() {
  return transport::make_backend(settings().backend, settings().options, transport::module_folders());
}

class ModuleWorld : public transport::World {
 public:
  explicit ModuleWorld(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
  Backend& backend() override { return *backend_; }
  DeviceInfo device(int index) override { return nics()[static_cast<size_t>(index) % nics().size()]; }
  // Where a device listened that is not there any more.
  std::string refusing_address() override {
    auto device = backend_->open(nics().back());
    EXPECT_TRUE(device.is_ok()) << device.status().to_string();
    if (!device.is_ok()) return "";
    const auto address = device.value()->listen(0);
    EXPECT_TRUE(address.is_ok()) << address.status().to_string();
    return address.is_ok() ? address.value() : "";
  }
  std::string silent_address() override { return settings().silent_address; }

 private:
  std::unique_ptr<Backend> backend_;
};

bool wanted(const DeviceInfo& nic) {
  const auto& names = settings().nics;
  if (names.empty()) return nic.up;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name == nic.name || name == nic.address; });
}

}  // namespace

Status prepare(const Settings& wished) {
  settings() = wished;
  auto backend = make();
  if (!backend.is_ok()) return backend.status();
  auto found = backend.value()->discover();
  if (!found.is_ok()) return found.status();
  std::string there;
  for (const DeviceInfo& nic : found.value()) {
    there += (there.empty() ? "" : ", ") + nic.name + " (" + nic.address + (nic.up ? ")" : ", down)");
    if (wanted(nic)) nics().push_back(nic);
  }
  if (nics().empty()) {
    return {Code::kNoBackend, "backend " + wished.backend + " has no NIC that is " +
                                  (wished.nics.empty() ? "up" : "called as --nic says") + "; it finds " +
                                  (there.empty() ? "none" : there)};
  }
  if (wished.addresses.empty()) return Status::ok();
  const DeviceInfo first = nics().front();
  nics().clear();
  for (const std::string& address : wished.addresses) {
    nics().push_back(first);
    nics().back().address = address;
  }
  return Status::ok();
}

const std::vector<DeviceInfo>& chosen_nics() { return nics(); }

std::unique_ptr<transport::World> make_world() {
  auto backend = make();
  // It could be made a moment ago, in prepare().
  if (!backend.is_ok()) throw std::runtime_error(backend.status().to_string());
  return std::make_unique<ModuleWorld>(backend.take());
}

}  // namespace hdt::backend_test
