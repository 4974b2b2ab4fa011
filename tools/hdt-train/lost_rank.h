// lost_rank.h: a run that has failed in words: which rank of the world is to blame, and what it did there.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "training/engine/layout.h"

namespace hdt::tools {

// `failure` is what a group of the engine reports in step `step` (counted from 1), in that group's numbers.
// Waits, 2 s at most, for the failure of `world` behind it, and names the rank by its number there, its
// replica and its stage, and `newest_checkpoint`, if it is not "".
Status failure_of_step(int64_t step, const Status& failure, const training::Layout& layout,
                       Communicator& world, const std::string& newest_checkpoint);

}  // namespace hdt::tools
