// plan_layout.h: takes the layout from a plan of hdt-plan (--plan) instead of flags.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// Reads the plan that --plan names into the flags. kInvalidArgument if a flag beside it says something
// else; kConfig if the plan is broken or the engine cannot run it. `app` knows which flags were given.
Status take_plan(const CLI::App& app, TrainFlags& flags);

// The maximum of TrainerOptions::bucket_elements by a plan, which counts bytes of gradients.
size_t bucket_elements(const plan::Plan& plan, training::NumberType gradients);

// The layout for the job's number of ranks, from the plan or from the flags. kInvalidArgument if they do
// not fit each other.
Result<training::Layout> make_run_layout(const TrainFlags& flags);

// Rank 0 warns if ranks run on other nodes than the plan has their stages on, as what was predicted does not
// hold for that. All ranks of `world` must call it, with a plan or without; with one, its number of stages
// must be that of ranks.
Status warn_of_misplaced_ranks(const TrainFlags& flags, Communicator& world);

// How many layers of a chunk of a stage are computed again as a whole for their backward, the first ones: the
// plan's number, or that of the flags.
int recomputed_layers(const TrainFlags& flags, const training::Layout& layout, training::Position position);
// The same of layers whose attention alone is computed again.
int recomputed_attentions(const TrainFlags& flags, const training::Layout& layout,
                          training::Position position);

}  // namespace hdt::tools
