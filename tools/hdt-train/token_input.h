// token_input.h: opens the tokens that a run trains on.
#pragma once

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/data/blended_sampler.h"
#include "training/data/data_split.h"
#include "training/data/token_source.h"
#include "training/data/token_statistics.h"

namespace hdt::tools {

// A token that the model does not know was read. The message names the file, the position and the token.
// Sources of tokens have no status, as only this can happen to a file that is mapped; so it goes through
// the engine as an exception, before the step uses the sample.
struct ForeignToken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One dataset, or the text: its parts (--split), and what was counted in a sample of it.
struct TokenSet {
  std::string flag;  // "--data-path PREFIX" or "--text FILE", for messages
  double weight = 1;
  // By DataPart; null for a part without a weight.
  std::array<std::shared_ptr<const training::TokenSource>, training::kDataParts> parts;
  training::TokenStatistics statistics;
};

// All data of a run.
struct TokenInput {
  std::vector<TokenSet> sets;

  // The data in words that differ if its sizes, weights, parts or samples do. docs/design/data.md says what
  // that does not find.
  std::string identity() const;
  // Of the only dataset; nan if there are several, as their tokens were not counted together.
  double unigram_entropy() const;
};

// Maps the datasets of --data-path, or the file of --text, in a time that does not depend on its size.
// Reading the parts throws ForeignToken for tokens that the model does not know. kInvalidArgument: there
// are such tokens in the sample. An error names the flag. Each rank maps the data itself.
Result<TokenInput> open_tokens(const TrainFlags& flags);

// The sampler of a part that has a weight. Errors name the
// flag of the data.
Result<training::BlendedSampler> make_sampler(const TrainFlags& flags, const TokenInput& input,
                                              training::DataPart part, int64_t global_batch_size);

}  // namespace hdt::tools
