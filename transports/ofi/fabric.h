// fabric.h: a libfabric provider opened on one local address.
#pragma once

#include <rdma/fi_domain.h>

#include <memory>
#include <string>

#include "transports/ofi/handle.h"
#include "transports/ofi/provider.h"
#include "transports/tagged/channel.h"

namespace hdt::transport::ofi {

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// What the provider offers at a local address; an error if it does not work there.
Result<Info> find_info(const Provider& provider, const std::string& address);
// "libfabric 1.17.0"
std::string library_version();

class OfiFabric final : public tagged::Fabric {
 public:
  static Result<std::unique_ptr<tagged::Fabric>> open(const Provider& provider, const std::string& address);
  const std::string& protocol() const override { return protocol_; }
  size_t segment_bytes() const override { return segment_bytes_; }
  Result<std::unique_ptr<tagged::Channel>> open_channel() override;

 private:
  OfiFabric(const Provider& provider, Info info)
      : protocol_(std::string("ofi ") + provider.name),
        segment_bytes_(ofi::segment_bytes(provider)),
        info_(std::move(info)) {}

  std::string protocol_;
  size_t segment_bytes_;
  Info info_;
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
};

}  // namespace hdt::transport::ofi
