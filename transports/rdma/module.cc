// module.cc: the one symbol of libhdt-transport-rdma.so (transports/module.h).
#include "transports/module.h"

#include "transports/rdma/backend.h"

const hdt::transport::ModuleDescription* hdt_transport_module() {
  static const hdt::transport::ModuleDescription description{hdt::transport::kAbiVersion, "rdma",
                                                             "libibverbs and librdmacm " HDT_RDMA_VERSION,
                                                             &hdt::transport::rdma::make_system_backend};
  return &description;
}
