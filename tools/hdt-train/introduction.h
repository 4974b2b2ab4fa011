// introduction.h: what a run is, in words for its user.
#pragma once

#include <string>

#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/token_input.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// The layout in words, for the introduction and the picture of the loss.
std::string describe(const training::Layout& layout);

// Rank 0 prints this first: model, data, layout, and what flags do that is easily overlooked.
void introduce(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout);

}  // namespace hdt::tools
