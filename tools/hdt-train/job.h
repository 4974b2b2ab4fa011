// job.h: one rank's part of a whole run.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/run_so_far.h"
#include "tools/hdt-train/token_input.h"
#include "training/checkpoint/checkpoint.h"
#include "training/engine/layout.h"
#include "training/torch/pretrained_model.h"

namespace hdt::tools {

// Where the parameters come from; without either they have start values.
struct Origin {
  std::optional<training::Checkpoint> resume;           // to go on from, of this run (check_resume())
  std::optional<training::PretrainedModel> pretrained;  // to begin with
};

// Trains, saves, reports (on rank 0) and generates text. All ranks of `world` must call it with the same
// flags and layout. The files of `origin` are closed when they have been read. `so_far` is what the process
// has seen of the run before, and all that it sees now. Returns "" after a complete run and after SIGTERM, or
// a message if training diverged or the last checkpoint could not be saved, which is the same on all ranks.
// An error is this rank's own.
Result<std::string> run_job(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout,
                            Origin origin, RunSoFar& so_far, Communicator& world);

}  // namespace hdt::tools
