// fabric.cc: asks libfabric for a provider and opens it; see fabric.h.
#include "transports/ofi/fabric.h"

#include <rdma/fi_endpoint.h>

#include <cstring>

#include "transports/ofi/data_path.h"

namespace hdt::transport::ofi {

namespace {

// The oldest version of the interface that has everything used here.
constexpr uint32_t kApiVersion = FI_VERSION(1, 14);
// Operations that an endpoint can have under way, in each direction.
constexpr size_t kOperations = 256;

// The hints for libfabric: only what is set here matters to the choice.
Info hints_for(const Provider& provider) {
  Info hints(fi_allocinfo());
  // Frames of the window and segments ahead fit. The defaults of some providers cost tens of MiB for each
  // endpoint.
  hints->tx_attr->size = kOperations;
  hints->rx_attr->size = kOperations;
  hints->caps = FI_TAGGED | FI_SEND | FI_RECV;
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = ::strdup(provider.name);
  // One thread uses a device and all of its connections. Progress is made inside our calls only, so
  // nothing is placed in memory between them.
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  // FI_MR_LOCAL is left out: the provider itself registers the memory that it sends from and receives
  // into.
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  return hints;
}

}  // namespace

std::string library_version() {
  const uint32_t version = fi_version();
  return "libfabric " + std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

// A provider that stays in the node (shm) has no addresses of NICs, so it is asked for without one. The
// first offer is the best one.
Result<Info> find_info(const Provider& provider, const std::string& address) {
  const Info hints = hints_for(provider);
  fi_info* found = nullptr;
  const bool by_address = !provider.stays_in_node;
  const int error = fi_getinfo(kApiVersion, by_address ? address.c_str() : nullptr, nullptr,
                               by_address ? FI_SOURCE | FI_NUMERICHOST : 0, hints.get(), &found);
  if (error != 0) {
    return Status(Code::kNoBackend, std::string("libfabric's provider '") + provider.name +
                                        "' does not work on " + address + ": " + fi_strerror(-error));
  }
  return Info(found);
}

Result<std::unique_ptr<tagged::Fabric>> OfiFabric::open(const Provider& provider,
                                                        const std::string& address) {
  Result<Info> info = find_info(provider, address);
  if (!info.is_ok()) return info.status();
  std::unique_ptr<OfiFabric> opened(new OfiFabric(provider, info.take()));
  if (const int error = fi_fabric(opened->info_->fabric_attr, opened->fabric_.out(), nullptr); error != 0) {
    return from_fi_error(std::string("cannot open libfabric's '") + provider.name + "'", error);
  }
  if (const int error = fi_domain(opened->fabric_.get(), opened->info_.get(), opened->domain_.out(), nullptr);
      error != 0) {
    return from_fi_error(std::string("cannot open libfabric's '") + provider.name + "' on " + address, error);
  }
  return std::unique_ptr<tagged::Fabric>(std::move(opened));
}

Result<std::unique_ptr<tagged::DataPath>> OfiFabric::open_data_path() {
  return OfiDataPath::open(fabric_.get(), domain_.get(), info_.get());
}

}  // namespace hdt::transport::ofi
