// token_statistics.h: what a stream of tokens holds, and the loss that a model without context could
// reach on it.
#pragma once

#include <cstdint>
#include <optional>

#include "training/data/token_source.h"

namespace hdt::training {

// Everything is 0 for an empty stream.
struct TokenStatistics {
  uint64_t tokens = 0;
  uint64_t counted = 0;   // those that the other numbers are of: all of them, or a sample
  uint64_t distinct = 0;  // the part of the vocabulary that is used
  int64_t least = 0;      // smallest and largest token
  int64_t greatest = 0;
  // H = -sum p(t) ln p(t) over the tokens' frequencies, in nats (Shannon 1948). It is the cross entropy
  // of the best predictor that knows frequencies only. A loss below it shows that the model uses context.
  double unigram_entropy = 0;
  // CRC-32C of all tokens in their order, as int64: the same for the same data, whatever its file's type.
  uint32_t checksum = 0;
};

// Reads the whole stream once.
TokenStatistics token_statistics(const TokenSource& source);

// A million tokens at most, whatever the size of the stream: blocks that are spread evenly over it, with both
// ends. A short stream is read whole.
constexpr uint64_t kSampledTokens = uint64_t{1} << 20;
TokenStatistics sampled_statistics(const TokenSource& source);

// A token with its place.
struct PlacedToken {
  int64_t token = 0;
  uint64_t position = 0;  // from 0, in the stream
};

// The first token that is not one of 0 .. vocab_size - 1; nothing if there is none. Reads the stream up
// to it.
std::optional<PlacedToken> first_foreign_token(const TokenSource& source, int64_t vocab_size);

}  // namespace hdt::training
