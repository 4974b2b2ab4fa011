// pretrained.h: a run that starts from a model of Hugging Face's library (--load-hf).
#pragma once

#include <optional>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/engine/optimizer.h"
#include "training/torch/pretrained_model.h"

namespace hdt::tools {

// The model of --load-hf. Nothing if the flag is not given. Each rank looks itself. kInvalidArgument names
// what is wrong with the folder.
Result<std::optional<training::PretrainedModel>> open_pretrained(const TrainFlags& flags);

// Fills this rank's parameters, and reads no others.
Status load_parameters(const training::PretrainedModel& model, const training::Optimizer& optimizer);

}  // namespace hdt::tools
