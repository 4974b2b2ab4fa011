// token_input.h: opens the tokens that a run trains on.
#pragma once

#include <memory>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/data/token_source.h"
#include "training/data/token_statistics.h"

namespace hdt::tools {

// The tokens, and what was counted in one pass over them.
struct TokenInput {
  std::shared_ptr<const training::TokenSource> tokens;
  training::TokenStatistics statistics;
};

// Opens the dataset of --data-path, or reads the file of --text. An error names the flag.
// kInvalidArgument if there are tokens that the model does not know. Each rank reads the data itself.
Result<TokenInput> open_tokens(const TrainFlags& flags);

}  // namespace hdt::tools
