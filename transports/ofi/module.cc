// module.cc: the one symbol of libhdt-transport-ofi.so (transports/module.h).
#include "transports/ofi/backend.h"
#include "transports/ofi/fabric.h"

const hdt::transport::ModuleDescription* hdt_transport_module() {
  static const std::string library = hdt::transport::ofi::library_version();
  static const hdt::transport::ModuleDescription description{
      hdt::transport::kAbiVersion, "ofi", library.c_str(), &hdt::transport::make_ofi_backend};
  return &description;
}
