// fabric.cc: configures and opens UCX for one NIC; see fabric.h.
#include "transports/ucx/fabric.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "transports/tagged/frame.h"
#include "transports/ucx/data_path.h"

namespace hdt::transport::ucx {

namespace {

// The longest segments that there are. They are far above the threshold of UCX's rendezvous, which places
// payload without a copy but costs a handshake for each.
constexpr size_t kSegmentBytes = tagged::kMaxSegmentBytes;

// The value of NET_DEVICES for a network interface: its own name, and the RDMA devices that belong to it
// as UCX names them ("mlx5_0:1"). A device belongs to it if its first GID is that of the interface (RoCE),
// or if both are on the same PCI device.
std::string devices_of(const std::string& interface) {
  std::string names = interface;
  std::error_code ignored;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", ignored)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", ignored)) {
      std::ifstream gid(port.path() / "gid_attrs/ndevs/0");
      std::string owner;
      const bool named = gid >> owner && owner == interface;
      const bool child = std::filesystem::exists(
          "/sys/class/net/" + interface + "/device/infiniband/" + device.path().filename().string(), ignored);
      if (named || child)
        names += "," + device.path().filename().string() + ":" + port.path().filename().string();
    }
  }
  return names;
}

// Changes one setting of `config`, whatever the environment says.
Status set(ucp_config_t* config, const char* key, const std::string& value) {
  const ucs_status_t status = ucp_config_modify(config, key, value.c_str());
  return status == UCS_OK ? Status::ok()
                          : from_ucs(std::string("UCX does not take ") + key + " = '" + value + "'", status);
}

// Limits UCX to the NIC of this device, because striping over several NICs is the job of the link. An
// UCX_NET_DEVICES of the environment overrides that.
Status configure(ucp_config_t* config, const std::string& transports, const DeviceInfo& device) {
  if (!transports.empty()) HDT_RETURN_IF_ERROR(set(config, "TLS", transports));
  if (std::getenv("UCX_NET_DEVICES") == nullptr && !device.name.empty()) {
    return set(config, "NET_DEVICES", devices_of(device.name));
  }
  return Status::ok();
}

}  // namespace

std::string library_version() { return std::string("UCX ") + ucp_get_version_string(); }

size_t UcxFabric::segment_bytes() const { return kSegmentBytes; }

// 1. Reads the configuration from the UCX_* environment.
// 2. Adds the settings of this backend and of this NIC.
// 3. Opens a context for tagged messages with which a worker can be slept on.
Result<std::unique_ptr<tagged::Fabric>> UcxFabric::open(const std::string& transports,
                                                        const DeviceInfo& device) {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return from_ucs("cannot read UCX's configuration", status);
  }
  // Released on every way out; ucp_init() copies what it needs.
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner(config, &ucp_config_release);
  HDT_RETURN_IF_ERROR(configure(config, transports, device));
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  // UCX chooses its transports by the number of peers of a worker.
  parameters.estimated_num_eps = 1;
  std::unique_ptr<UcxFabric> opened(new UcxFabric);
  if (const ucs_status_t status = ucp_init(&parameters, config, &opened->context_); status != UCS_OK) {
    return Status(Code::kNoBackend, "UCX does not work on " + device.name + ": " + ucs_status_string(status));
  }
  return std::unique_ptr<tagged::Fabric>(std::move(opened));
}

UcxFabric::~UcxFabric() {
  if (context_ != nullptr) ucp_cleanup(context_);
}

Result<std::unique_ptr<tagged::DataPath>> UcxFabric::open_data_path() { return UcxDataPath::open(context_); }

}  // namespace hdt::transport::ucx
