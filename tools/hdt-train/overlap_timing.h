// overlap_timing.h: measures by how much computation slows down while communication is going on.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// Rank 0 of `pair` times `units` on each device of the profile, alone and while it sums gradients with
// rank 1 all the time, in turns. It gets the slow-down (1 or more) by device; rank 1 gets an empty map.
// Both ranks must call it.
Result<std::map<std::string, double>> time_overlap(const TrainFlags& flags, training::UnitRange units,
                                                   Communicator& pair);

}  // namespace hdt::tools
