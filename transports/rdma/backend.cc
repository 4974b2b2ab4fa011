// backend.cc: the rdma backend: reliable connections of InfiniBand, RoCE and iWARP adapters. See
// docs/design/rdma.md.
#include "transports/rdma/backend.h"

#include "transports/rdma/device.h"
#include "transports/rdma/discovery.h"

namespace hdt::transport::rdma {

namespace {

// One per engine. Its devices share the Domain and keep it alive.
class RdmaBackend final : public Backend {
 public:
  explicit RdmaBackend(std::shared_ptr<Verbs> verbs) : domain_(std::make_shared<Domain>(std::move(verbs))) {}
  const char* name() const override { return "rdma"; }
  Result<std::vector<DeviceInfo>> discover() override { return find_devices(domain_->verbs()); }
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    return RdmaDevice::open(domain_, info);
  }
  void limit_strangers(const StrangerLimits& limits) override { domain_->strangers.set_limits(limits); }

 private:
  std::shared_ptr<Domain> domain_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(std::shared_ptr<Verbs> verbs) {
  return std::make_unique<RdmaBackend>(std::move(verbs));
}

Result<std::unique_ptr<Backend>> make_system_backend(const BackendOptions& options) {
  if (!options.empty()) {
    return Status(Code::kConfig,
                  "[backend.rdma] has the key '" + options.begin()->first + "'; it takes none");
  }
  return make_backend(system_verbs());
}

}  // namespace hdt::transport::rdma
