// gloo_communicator.h: Gloo over TCP as an engine. Only where the program is built with it.
#pragma once

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {

// Connects every rank with every other; addresses travel through `group`.
Result<std::unique_ptr<Communicator>> make_gloo_communicator(Communicator& group, int64_t timeout_s);

std::string gloo_version();

}  // namespace hdt::bench
