// link_timing.h: measures the latency of messages, and the rates of messages and sums, between two ranks
// through the public API.
#pragma once

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "training/plan/describe/profile.h"

namespace hdt::tools {

// Measures the link between the two ranks of `pair`; both must call it. Each gets the figures that it
// measured itself. Takes up to some seconds. Errors are those of the operations.
Result<plan::Link> time_link(Communicator& pair);

}  // namespace hdt::tools
