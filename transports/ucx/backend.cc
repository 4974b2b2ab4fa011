// backend.cc: the UCX backend as the engine sees it; see backend.h.
#include "transports/ucx/backend.h"

#include <cstdlib>
#include <filesystem>

#include "transports/net/interfaces.h"
#include "transports/tagged/device.h"
#include "transports/ucx/fabric.h"

namespace hdt::transport {

namespace {

constexpr const char* kTransportsKey = "tls";

// UCX posts receives for thousands of peers, which take up to 50 MiB for each worker. Here each worker has
// one peer, so 256 are enough. UCX takes these settings from the environment only; variables that are set
// already stay. Nothing needs them where there are no RDMA devices.
void prepare_environment() {
  // A folder that is empty or missing, or cannot be read: there are no RDMA devices.
  std::error_code ignored;
  if (std::filesystem::is_empty("/sys/class/infiniband", ignored) || ignored) return;
  for (const char* transport : {"RC_VERBS", "RC_MLX5", "UD_VERBS", "UD_MLX5"}) {
    constexpr int kKeep = 0;
    ::setenv(("UCX_" + std::string(transport) + "_RX_QUEUE_LEN").c_str(), "256", kKeep);
  }
}

// One per engine. Its devices share the Domain and keep it alive; each has a Fabric of its own.
class UcxBackend final : public Backend {
 public:
  explicit UcxBackend(std::string transports) : transports_(std::move(transports)) {}
  const char* name() const override { return "ucx"; }

  // The network interfaces on which UCX finds something to use: a context and a worker can be opened
  // there. It may be shared memory alone, which reaches no other node; only connecting shows that.
  Result<std::vector<DeviceInfo>> discover() override {
    Result<std::vector<DeviceInfo>> interfaces = tcp::list_interfaces();
    if (!interfaces.is_ok()) return interfaces;
    std::vector<DeviceInfo> usable;
    for (DeviceInfo& device : interfaces.value()) {
      // A context opens even where nothing can be used; the worker shows it.
      Result<std::unique_ptr<tagged::Fabric>> fabric = ucx::UcxFabric::open(transports_, device);
      if (fabric.is_ok() && fabric.value()->open_data_path().is_ok()) usable.push_back(std::move(device));
    }
    return usable;
  }

  // kNoBackend if UCX does not work on the NIC; kLink if it does not take its settings.
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    Result<std::unique_ptr<tagged::Fabric>> fabric = ucx::UcxFabric::open(transports_, info);
    if (!fabric.is_ok()) return fabric.status();
    return tagged::TaggedDevice::open(domain_, info, fabric.take());
  }

  void limit_strangers(const StrangerLimits& limits) override { domain_->strangers.set_limits(limits); }

 private:
  std::string transports_;  // [backend.ucx] tls; empty: not set
  std::shared_ptr<tagged::Domain> domain_ = std::make_shared<tagged::Domain>();
};

}  // namespace

Result<std::unique_ptr<Backend>> make_ucx_backend(const BackendOptions& options) {
  std::string transports;
  for (const auto& [key, value] : options) {
    if (key != kTransportsKey) {
      return Status(Code::kConfig, "[backend.ucx] " + key + ": unknown key; expected " + kTransportsKey);
    }
    // An empty list would mean "what the environment says", which leaving the key out means already.
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
