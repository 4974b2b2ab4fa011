// backend.cc: the libfabric backend as the engine sees it; see backend.h.
#include "transports/ofi/backend.h"

#include "transports/net/interfaces.h"
#include "transports/ofi/fabric.h"
#include "transports/tagged/device.h"

namespace hdt::transport {

namespace {

constexpr const char* kProviderKey = "provider";

// One per engine. Its devices share the Domain and keep it alive; each has a Fabric of its own.
class OfiBackend final : public Backend {
 public:
  explicit OfiBackend(const ofi::Provider& provider) : provider_(provider) {}
  const char* name() const override { return "ofi"; }

  // The network interfaces at whose addresses the provider works. An interface is kept if libfabric
  // accepts its address; nothing is opened.
  Result<std::vector<DeviceInfo>> discover() override {
    Result<std::vector<DeviceInfo>> interfaces = tcp::list_interfaces();
    if (!interfaces.is_ok()) return interfaces;
    std::vector<DeviceInfo> usable;
    for (DeviceInfo& device : interfaces.value()) {
      // Peers on other nodes must not try this device. Everybody knows of a loopback address that it stays
      // within the node.
      if (provider_.stays_in_node && device.name != "lo") continue;
      if (ofi::find_info(provider_, device.address).is_ok()) usable.push_back(std::move(device));
    }
    return usable;
  }

  // kNoBackend if the provider does not work on the address, kLink if libfabric fails otherwise.
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    Result<std::unique_ptr<tagged::Fabric>> fabric = ofi::OfiFabric::open(provider_, info.address);
    if (!fabric.is_ok()) return fabric.status();
    return tagged::TaggedDevice::open(domain_, info, fabric.take());
  }

  void limit_strangers(const StrangerLimits& limits) override { domain_->strangers.set_limits(limits); }

 private:
  const ofi::Provider& provider_;  // a constant of provider.cc
  std::shared_ptr<tagged::Domain> domain_ = std::make_shared<tagged::Domain>();
};

// The names for an error: 'a', 'b', 'c'.
std::string list_providers() {
  std::string list;
  for (const ofi::Provider& each : ofi::providers())
    list += (list.empty() ? "'" : ", '") + std::string(each.name) + "'";
  return list;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_ofi_backend(const BackendOptions& options) {
  const ofi::Provider* provider = &ofi::providers().front();
  for (const auto& [key, value] : options) {
    if (key != kProviderKey) {
      return Status(Code::kConfig, "[backend.ofi] " + key + ": unknown key; expected " + kProviderKey);
    }
    provider = ofi::find_provider(value);
    if (provider == nullptr) {
      return Status(Code::kConfig, std::string("[backend.ofi] ") + kProviderKey + " = '" + value +
                                       "': expected one of " + list_providers());
    }
  }
  ofi::prepare_environment(*provider);
  return std::unique_ptr<Backend>(std::make_unique<OfiBackend>(*provider));
}

}  // namespace hdt::transport
