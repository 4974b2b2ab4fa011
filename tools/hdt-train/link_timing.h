// link_timing.h: latency and rates of messages and sums between two ranks, through the public API.
#pragma once

#include "base/status.h"
#include "hdt/hdt.h"
#include "training/plan/describe/profile.h"

namespace hdt::tools {

// Between ranks 0 and `peer`; both call it, on a communicator of the two (rank 0 and 1 of it). Both get the
// figures of rank 0.
Result<plan::Link> time_link(hdtComm_t pair);

}  // namespace hdt::tools
