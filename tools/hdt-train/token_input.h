// token_input.h: the tokens that a run trains on.
#pragma once

#include <memory>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/data/token_source.h"
#include "training/data/token_statistics.h"

namespace hdt::tools {

struct TokenInput {
  std::shared_ptr<const training::TokenSource> tokens;
  training::TokenStatistics statistics;
};

// Opens --data-path or reads --text. Refuses tokens that the model does not know.
Result<TokenInput> open_tokens(const TrainFlags& flags);

}  // namespace hdt::tools
