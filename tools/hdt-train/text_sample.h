// text_sample.h: a piece of text from the trained model.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"

namespace hdt::tools {

// The prompt and what the model continues it with. The ranks of replica 0 call it.
Result<std::string> sample_text(const TrainFlags& flags, const training::Layout& layout,
                                training::StageCompute& compute, training::Messenger& messenger);

}  // namespace hdt::tools
