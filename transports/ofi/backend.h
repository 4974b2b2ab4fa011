// backend.h: the libfabric backend. Options: provider = "tcp;ofi_rxm" (default), "verbs;ofi_rxm" or "shm".
#pragma once

#include <memory>

#include "transports/module.h"

namespace hdt::transport {

Result<std::unique_ptr<Backend>> make_ofi_backend(const BackendOptions& options);

}  // namespace hdt::transport
