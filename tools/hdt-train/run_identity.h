// run_identity.h: finds out whether ranks were started with different flags or data, before they train
// nonsense.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"

namespace hdt::tools {

// All ranks must call it. kMismatch, on all of them, unless model, layout, optimizer, seed, sampling,
// `data` (TokenInput::identity()) and `checkpoint` (which one the run goes on from, "" for none) are the
// same on all. The message has this rank's own values.
Status check_same_run(const TrainFlags& flags, const training::Layout& layout, const std::string& data,
                      const std::string& checkpoint, training::Messenger& messenger);

}  // namespace hdt::tools
