// backend.h: the UCX backend: tagged messages of UCP, under the connections of transports/tagged. See
// docs/design/ucx.md.
#pragma once

#include <memory>

#include "transports/module.h"

namespace hdt::transport {

// For the module, on the thread that loads backends. Option: tls, a list as UCX_TLS has it, such as "tcp"
// or "rc,self". Everything else is set by the UCX_* environment. kConfig for another key or an empty
// value.
Result<std::unique_ptr<Backend>> make_ucx_backend(const BackendOptions& options);

}  // namespace hdt::transport
