// token_statistics.h: what a stream of tokens holds, and the loss that a model without context could reach on
// it.
#pragma once

#include <cstdint>
#include <optional>

#include "training/data/token_source.h"

namespace hdt::training {

struct TokenStatistics {
  uint64_t tokens = 0;
  uint64_t distinct = 0;  // the part of the vocabulary that is used
  int64_t least = 0;
  int64_t greatest = 0;
  // H = -sum p(t) ln p(t) over the tokens' frequencies, in nats: the cross entropy of the best predictor that
  // knows frequencies only. A loss below it shows that context is being used.
  double unigram_entropy = 0;
};

// Reads the whole stream once.
TokenStatistics token_statistics(const TokenSource& source);

struct PlacedToken {
  int64_t token = 0;
  uint64_t position = 0;  // from 0, in the stream
};

// The first token that is not one of 0 .. vocab_size - 1; reads the stream up to it.
std::optional<PlacedToken> first_foreign_token(const TokenSource& source, int64_t vocab_size);

}  // namespace hdt::training
