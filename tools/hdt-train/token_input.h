// token_input.h: opens the tokens that a run trains on.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/data/batch_sampler.h"
#include "training/data/data_split.h"
#include "training/data/token_source.h"
#include "training/data/token_statistics.h"

namespace hdt::tools {

// The tokens, their parts (--split), and what was counted in one pass over them.
struct TokenInput {
  std::shared_ptr<const training::TokenSource> tokens;
  // By DataPart; null for a part without a weight.
  std::array<std::shared_ptr<const training::TokenSource>, training::kDataParts> parts;
  training::TokenStatistics statistics;

  // The data in words that differ if anything does that a step may see.
  std::string identity() const;
};

// Opens the dataset of --data-path, or reads the file of --text. An error names the flag.
// kInvalidArgument if there are tokens that the model does not know, or if a part is too short for a sample. Each rank reads the data itself.
Result<TokenInput> open_tokens(const TrainFlags& flags);

// The sampler of a part that has a weight. Errors name the
// flag of the data.
Result<training::BatchSampler> make_sampler(const TrainFlags& flags, const TokenInput& input,
                                            training::DataPart part, int64_t global_batch_size);

}  // namespace hdt::tools
