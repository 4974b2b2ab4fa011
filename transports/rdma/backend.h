// backend.h: the rdma backend over any implementation of its libraries' calls.
#pragma once

#include <memory>

#include "transports/module.h"
#include "transports/rdma/verbs.h"

namespace hdt::transport::rdma {

std::unique_ptr<Backend> make_backend(std::shared_ptr<Verbs> verbs);

// For the module: with the libraries. It takes no options.
Result<std::unique_ptr<Backend>> make_system_backend(const BackendOptions& options);

}  // namespace hdt::transport::rdma
