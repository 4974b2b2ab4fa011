// run_identity.h: finds out that ranks were started with different flags or data, before they train nonsense.
#pragma once

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/data/token_statistics.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"

namespace hdt::tools {

// All ranks call it; fails on all of them unless model, layout, optimizer, seed and data are the same on all.
Status check_same_run(const TrainFlags& flags, const training::Layout& layout,
                      const training::TokenStatistics& statistics, training::Messenger& messenger);

}  // namespace hdt::tools
