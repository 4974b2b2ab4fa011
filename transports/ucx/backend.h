// backend.h: the UCX backend. Options: tls, as UCX_TLS, e.g. "tcp" or "rc,self"; everything else by the UCX_*
// environment.
#pragma once

#include <memory>

#include "transports/module.h"

namespace hdt::transport {

Result<std::unique_ptr<Backend>> make_ucx_backend(const BackendOptions& options);

}  // namespace hdt::transport
