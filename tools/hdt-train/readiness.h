// readiness.h: makes a run begin on all ranks or on none.
#pragma once

#include "base/status.h"
#include "hdt/hdt.hpp"

namespace hdt::tools {

// Each rank says how its preparation has ended. Ok if all ranks are ready. A rank that is not ready gets
// `mine` back; the others get kAborted with the number of such a rank, and end instead of waiting for
// what will not come. All ranks of `world` must call it.
Status all_ready(const Status& mine, Communicator& world);

}  // namespace hdt::tools
