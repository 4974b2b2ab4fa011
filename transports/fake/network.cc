// network.cc: the handle of an in-memory network and the backend that it makes (see network.h). Its state
// lives in NetworkState, which the handle, its backends and their devices share.
#include "transports/fake/network.h"

#include "transports/fake/device.h"
#include "transports/fake/state.h"

namespace hdt::transport::fake {

namespace {

// A backend of the network. Its domain is its own: a region key is valid on the devices of one backend, as
// with real ones.
class FakeBackend final : public Backend {
 public:
  FakeBackend(std::shared_ptr<NetworkState> network, std::vector<DeviceInfo> devices)
      : network_(std::move(network)), devices_(std::move(devices)) {}
  const char* name() const override { return "fake"; }
  Result<std::vector<DeviceInfo>> discover() override { return devices_; }
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    return FakeDevice::open(network_, domain_, info);
  }
  // No limit: only tests connect here, and an accepted connection that is not admitted costs little memory.
  void limit_strangers(const StrangerLimits&) override {}

 private:
  std::shared_ptr<NetworkState> network_;
  std::shared_ptr<Domain> domain_ = std::make_shared<Domain>();
  std::vector<DeviceInfo> devices_;
};

}  // namespace

FakeNetwork::FakeNetwork(uint64_t seed) : state_(std::make_shared<NetworkState>(seed)) {}

std::unique_ptr<Backend> FakeNetwork::make_backend(std::vector<DeviceInfo> devices) {
  return std::make_unique<FakeBackend>(state_, std::move(devices));
}

void FakeNetwork::set_faults(const std::string& address, const Faults& faults) {
  const std::lock_guard lock(state_->mutex);
  state_->faults[address] = faults;
}

void FakeNetwork::set_faults(const Faults& faults) {
  const std::lock_guard lock(state_->mutex);
  state_->default_faults = faults;
}

void FakeNetwork::set_unreachable(const std::string& address) {
  const std::lock_guard lock(state_->mutex);
  state_->unreachable.insert(address);
}

void FakeNetwork::cut(const std::string& address) {
  const std::lock_guard lock(state_->mutex);
  for (FakeDevice* device : state_->devices) {
    if (device->info().address == address) device->cut();
  }
}

}  // namespace hdt::transport::fake
