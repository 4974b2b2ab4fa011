// text_sample.h: generates a piece of text with the trained model.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/model_chunks.h"

namespace hdt::tools {

// The prompt, followed by what the model generates. All ranks of replica 0 must call it; each holds a
// stage. kInvalidArgument if the vocabulary lacks a byte of the prompt.
Result<std::string> sample_text(const TrainFlags& flags, const training::Layout& layout,
                                const training::ChunksOf<training::TextCompute>& chunks,
                                training::Messenger& messenger);

}  // namespace hdt::tools
