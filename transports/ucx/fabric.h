// fabric.h: UCX opened on one NIC. What it uses there is UCX's own choice, and that of the UCX_* environment.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "transports/tagged/channel.h"
#include "transports/transport.h"

namespace hdt::transport::ucx {

// "UCX 1.13.1"
std::string library_version();

inline Status from_ucs(const std::string& what, ucs_status_t status) {
  return {Code::kLink, what + ": " + ucs_status_string(status)};
}

class UcxFabric final : public tagged::Fabric {
 public:
  // `transports` as in UCX_TLS; empty: what the environment says, or all.
  static Result<std::unique_ptr<tagged::Fabric>> open(const std::string& transports,
                                                      const DeviceInfo& device);
  ~UcxFabric() override;
  const std::string& protocol() const override { return protocol_; }
  size_t segment_bytes() const override;
  Result<std::unique_ptr<tagged::Channel>> open_channel() override;

 private:
  UcxFabric() = default;
  std::string protocol_ = "ucx tag";
  ucp_context_h context_ = nullptr;
};

}  // namespace hdt::transport::ucx
