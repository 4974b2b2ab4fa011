// fabric.h: UCX opened on one NIC. Its transports there (RDMA, TCP, shared memory) are its own choice, and
// that of the UCX_* environment.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "transports/tagged/data_path.h"
#include "transports/transport.h"

namespace hdt::transport::ucx {

// The version of the library at run time, for the module's description: "UCX 1.13.1".
std::string library_version();

// kLink, with the text of UCX.
inline Status from_ucs(const std::string& what, ucs_status_t status) {
  return {Code::kLink, what + ": " + ucs_status_string(status)};
}

// Owned by a TaggedDevice, used on its thread. It holds a UCP context, which is limited to its NIC;
// data paths must be destroyed before it.
class UcxFabric final : public tagged::Fabric {
 public:
  // `transports`: a list as in UCX_TLS; empty: what the environment says, or all. kNoBackend if UCX finds
  // nothing to use on the NIC; kLink if it does not take its settings.
  static Result<std::unique_ptr<tagged::Fabric>> open(const std::string& transports,
                                                      const DeviceInfo& device);
  ~UcxFabric() override;
  const std::string& protocol() const override { return protocol_; }
  size_t segment_bytes() const override;
  Result<std::unique_ptr<tagged::DataPath>> open_data_path() override;

 private:
  UcxFabric() = default;
  std::string protocol_ = "ucx tag";
  ucp_context_h context_ = nullptr;
};

}  // namespace hdt::transport::ucx
