// overlap_timing.h: by how much computation slows down while communication goes on.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "hdt/hdt.h"
#include "tools/hdt-train/flags.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// Both ranks of `pair` call it. Rank 0 times `units` on each device of the profile, alone and while it sums
// gradients with rank 1 all the time, in turn; it gets the slow-down by device, rank 1 nothing.
Result<std::map<std::string, double>> time_overlap(const TrainFlags& flags, training::UnitRange units,
                                                   hdtComm_t pair);

}  // namespace hdt::tools
