// backend.h: the libfabric backend: reliable datagram endpoints (FI_EP_RDM) with tagged messages, under
// the connections of transports/tagged. See docs/design/ofi.md.
#pragma once

#include <memory>

#include "transports/module.h"

namespace hdt::transport {

// For the module, on the thread that loads backends. Option: provider = "tcp;ofi_rxm" (default),
// "verbs;ofi_rxm" or "shm". kConfig for another key or value. Sets environment variables of libfabric
// (provider.h).
Result<std::unique_ptr<Backend>> make_ofi_backend(const BackendOptions& options);

}  // namespace hdt::transport
