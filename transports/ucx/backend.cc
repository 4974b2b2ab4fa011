// backend.cc: see backend.h.
#include "transports/ucx/backend.h"

#include <cstdlib>
#include <filesystem>

#include "transports/net/interfaces.h"
#include "transports/tagged/device.h"
#include "transports/ucx/fabric.h"

namespace hdt::transport {

namespace {

constexpr const char* kTransportsKey = "tls";

// UCX posts receives for thousands of peers, up to 50 MiB of them a worker; here each worker has one peer. It
// takes these settings from the environment only; those that are there already stay. Where there are no RDMA
// devices nothing needs them.
void prepare_environment() {
  std::error_code ignored;
  if (std::filesystem::is_empty("/sys/class/infiniband", ignored) || ignored) return;
  for (const char* transport : {"RC_VERBS", "RC_MLX5", "UD_VERBS", "UD_MLX5"}) {
    constexpr int kKeep = 0;
    ::setenv(("UCX_" + std::string(transport) + "_RX_QUEUE_LEN").c_str(), "256", kKeep);
  }
}

class UcxBackend final : public Backend {
 public:
  explicit UcxBackend(std::string transports) : transports_(std::move(transports)) {}
  const char* name() const override { return "ucx"; }

  // The interfaces on which UCX finds something to use.
  Result<std::vector<DeviceInfo>> discover() override {
    Result<std::vector<DeviceInfo>> interfaces = tcp::list_interfaces();
    if (!interfaces.is_ok()) return interfaces;
    std::vector<DeviceInfo> usable;
    for (DeviceInfo& device : interfaces.value()) {
      Result<std::unique_ptr<tagged::Fabric>> fabric = ucx::UcxFabric::open(transports_, device);
      if (fabric.is_ok() && fabric.value()->open_channel().is_ok()) usable.push_back(std::move(device));
    }
    return usable;
  }

  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    Result<std::unique_ptr<tagged::Fabric>> fabric = ucx::UcxFabric::open(transports_, info);
    if (!fabric.is_ok()) return fabric.status();
    return tagged::TaggedDevice::open(domain_, info, fabric.take());
  }

  void limit_strangers(const StrangerLimits& limits) override { domain_->strangers.set_limits(limits); }

 private:
  std::string transports_;
  std::shared_ptr<tagged::Domain> domain_ = std::make_shared<tagged::Domain>();
};

}  // namespace

Result<std::unique_ptr<Backend>> make_ucx_backend(const BackendOptions& options) {
  std::string transports;
  for (const auto& [key, value] : options) {
    if (key != kTransportsKey) {
      return Status(Code::kConfig, "[backend.ucx] " + key + ": unknown key; expected " + kTransportsKey);
    }
    if (value.empty()) {
      return Status(Code::kConfig, std::string("[backend.ucx] ") + kTransportsKey +
                                       " = '': expected a list as UCX_TLS has it, e.g. 'tcp' or 'rc,self'");
    }
    transports = value;
  }
  prepare_environment();
  return std::unique_ptr<Backend>(std::make_unique<UcxBackend>(transports));
}

}  // namespace hdt::transport
