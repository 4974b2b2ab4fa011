// census_folder.h: the folder below --save in which the ranks of a run find out after a loss who is left
// (training/checkpoint/census.h).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "training/checkpoint/census.h"

namespace hdt::tools {

// Makes the folder and each rank's file, and removes what earlier runs have left. To be called where no other
// run uses `save`: after its lock was taken once. All ranks of `world` must call it, the one that the run
// begins with. An error is this rank's own, or kAborted because of another one's.
Result<std::unique_ptr<training::Census>> open_census(const std::string& save, Communicator& world);

// After a run that has ended well, on one rank.
void remove_census(const training::Census& census);

}  // namespace hdt::tools
