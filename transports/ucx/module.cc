// module.cc: the one symbol of libhdt-transport-ucx.so (transports/module.h).
#include "transports/ucx/backend.h"
#include "transports/ucx/fabric.h"

const hdt::transport::ModuleDescription* hdt_transport_module() {
  static const std::string library = hdt::transport::ucx::library_version();
  static const hdt::transport::ModuleDescription description{
      hdt::transport::kAbiVersion, "ucx", library.c_str(), &hdt::transport::make_ucx_backend};
  return &description;
}
