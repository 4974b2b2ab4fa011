// gloo_communicator.h: Gloo over TCP as an engine. Present only if the program is built with Gloo.
#pragma once

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {

// Connects every rank with every other one. The addresses are exchanged over `group`, all of whose ranks
// must call it; it must outlive the result. `timeout_s` is the deadline of every operation in seconds.
Result<std::unique_ptr<Communicator>> make_gloo_communicator(Communicator& group, int64_t timeout_s);

// "Gloo 0.5.0, tcp".
std::string gloo_version();

}  // namespace hdt::bench
