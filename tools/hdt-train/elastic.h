// elastic.h: a run that outlives ranks (--elastic).
//
// The ranks that are left find out who they are (training/checkpoint/census.h), make a group of their own
// (hdtCommShrink), compute the same new layout from the first one (training/engine/elastic_layout.h), and go
// on in it from the last checkpoint, as a run does that is started anew with --load. Nothing is restarted:
// the processes stay.
#pragma once

#include <string>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/job.h"
#include "tools/hdt-train/token_input.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// As run_job(), and if --elastic is given again with the ranks that are left after each loss, until the run
// ends or this rank fails itself. `speaks`: whether this rank is the one that prints what all know at the
// end. Another loss on that way is no end, but five in a row are; so are ranks that do not agree who is left,
// within a bounded time.
Result<std::string> run_elastically(const TrainFlags& flags, const TokenInput& input,
                                    const training::Layout& layout, Origin origin, Communicator& world,
                                    bool& speaks);

}  // namespace hdt::tools
