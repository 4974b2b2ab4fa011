// emulation.h: hdt-train --emulate: the steps of a plan on devices that are not there. Computation is a wait
// of the length that a profile gives; memory, messages and sums are real.
#pragma once

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// Adds the flags. `flags` must outlive the parsing.
void add_emulation(CLI::App& app, TrainFlags& flags);
// After parsing: kInvalidArgument names a flag that an emulated run has no use for, or lacks. Fills in the
// files beside the profile where they are not named.
Status take_emulation(const CLI::App& app, TrainFlags& flags);

// Runs flags.train_iters steps. Rank 0 prints progress and, at the end, throughput, acceleration ratio and
// the share of the step in which each device computes. All ranks of `world` must call it with the same flags.
// An error is this rank's own.
Status run_emulated(const TrainFlags& flags, const training::Layout& layout, Communicator& world);

}  // namespace hdt::tools
