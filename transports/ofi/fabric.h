// fabric.h: a provider of libfabric opened on one local address.
#pragma once

#include <rdma/fi_domain.h>

#include <memory>
#include <string>

#include "transports/ofi/handle.h"
#include "transports/ofi/provider.h"
#include "transports/tagged/data_path.h"

namespace hdt::transport::ofi {

// An owned fi_info: what a provider offers, or what is asked for.
struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// The provider's offer at a local address. kNoBackend, with libfabric's reason, if it does not work
// there.
Result<Info> find_info(const Provider& provider, const std::string& address);
// The version of the library at run time, for the module's description: "libfabric 1.17".
std::string library_version();

// Owned by a TaggedDevice, used on its thread. It holds the fabric and the domain, which all data paths of
// the device share; data paths must be destroyed before it.
class OfiFabric final : public tagged::Fabric {
 public:
  // kNoBackend if the provider does not work on the address; kLink if it cannot be opened.
  static Result<std::unique_ptr<tagged::Fabric>> open(const Provider& provider, const std::string& address);
  const std::string& protocol() const override { return protocol_; }
  size_t segment_bytes() const override { return segment_bytes_; }
  Result<std::unique_ptr<tagged::DataPath>> open_data_path() override;

 private:
  OfiFabric(const Provider& provider, Info info)
      : protocol_(std::string("ofi ") + provider.name),
        segment_bytes_(ofi::segment_bytes(provider)),
        info_(std::move(info)) {}

  std::string protocol_;  // "ofi " and the name of the provider
  size_t segment_bytes_;
  Info info_;  // every endpoint is opened with it
  // Closed from the last to the first: the domain before its fabric.
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
};

}  // namespace hdt::transport::ofi
