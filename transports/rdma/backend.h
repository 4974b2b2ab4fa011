// backend.h: makes the rdma backend, over any implementation of its libraries' calls (verbs.h).
#pragma once

#include <memory>

#include "transports/module.h"
#include "transports/rdma/verbs.h"

namespace hdt::transport::rdma {

// For tests as well: with a simulated adapter.
std::unique_ptr<Backend> make_backend(std::shared_ptr<Verbs> verbs);

// For the module: with the libraries. kConfig for any option, as it takes none.
Result<std::unique_ptr<Backend>> make_system_backend(const BackendOptions& options);

}  // namespace hdt::transport::rdma
