// resume.h: a run that goes on from a checkpoint (--load): which one, whether it is one of this run, and its
// tensors. The layout may be another one.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/token_input.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/trained_tensor.h"
#include "training/engine/layout.h"
#include "training/engine/optimizer.h"

namespace hdt::tools {

// The newest checkpoint of --load. Nothing if the flag is not given, or if there is no checkpoint and the
// flags allow that; then rank 0 warns. Each rank looks itself. kInvalidArgument: there is none, or none is
// complete.
Result<std::optional<training::Checkpoint>> open_resume(const TrainFlags& flags, int rank);

// Flags, and facts of the tokens, that a run must have in common with the one that it continues.
std::map<std::string, std::string> run_fingerprint(const TrainFlags& flags, const TokenInput& input,
                                                   const training::Layout& layout);

// Settings that a run may change when it goes on: those of the learning rate and of the optimizer, by their
// flags.
std::map<std::string, std::string> run_settings(const TrainFlags& flags);
// A line for each setting that the run of the checkpoint had with another value. Empty if they are the same,
// or the checkpoint has none.
std::vector<std::string> changed_settings(const training::TrainingState& state, const TrainFlags& flags);

// Whether this run may go on from the checkpoint. kMismatch names every flag that differs, with both values,
// or the tensors that are missing, too many or of another shape. The same on all ranks.
Status check_resume(const training::Checkpoint& checkpoint, const TrainFlags& flags, const TokenInput& input,
                    const training::Layout& layout);

// A tensor of the optimizer as the checkpoint's library knows it: its parameters are the masters.
training::TrainedTensor trained_tensor(const training::TensorState& tensor);

// Reads the parameters of this rank's tensors, which are rounded to the type of the model, and the moments of
// its shards. kInvalidArgument names the
// tensor and the file.
Status load_tensors(training::Checkpoint& checkpoint, const training::Optimizer& optimizer);

}  // namespace hdt::tools
