// token_statistics.h: what a stream of tokens holds, and the loss that a model without context could reach on
// it.
#pragma once

#include <cstdint>

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

}  // namespace hdt::training
