// readiness.h: a run begins on all ranks or on none.
#pragma once

#include "base/status.h"
#include "hdt/hdt.h"

namespace hdt::tools {

// Each rank says how its preparation ended. Success where all are ready. A rank that is not gets `mine` back;
// the others get kAborted with the number of a rank that is not, and end with it instead of waiting for what
// will not come. Collective over `world`.
Status all_ready(const Status& mine, hdtComm_t world);

}  // namespace hdt::tools
