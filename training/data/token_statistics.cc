// token_statistics.cc: passes over a stream in blocks, so that memory does not grow with the stream.
#include "training/data/token_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/crc32c.h"

namespace hdt::training {

namespace {

constexpr uint64_t kBlockTokens = 1 << 16;  // read at a time
constexpr uint64_t kSampledBlocks = 64;

// Of `blocks` blocks; block i begins at starts(i), and all are of `size` tokens but the last, which may be
// shorter.
template <typename Starts>
TokenStatistics statistics_of(const TokenSource& source, uint64_t blocks, uint64_t size,
                              const Starts& starts) {
  // Vocabularies are small, so most tokens are counted in an array; a map would cost more than the reading.
  constexpr int64_t kDirect = 1 << 18;  // tokens below are counted in an array, the others in a map
  TokenStatistics statistics;
  statistics.tokens = source.token_count();
  if (statistics.tokens == 0) return statistics;
  statistics.least = std::numeric_limits<int64_t>::max();
  statistics.greatest = std::numeric_limits<int64_t>::min();

  std::vector<uint64_t> direct(kDirect);
  std::unordered_map<int64_t, uint64_t> others;
  std::vector<int64_t> block;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t first = starts(i);
    block.resize(std::min(size, statistics.tokens - first));
    source.read_tokens(first, block);
    statistics.counted += block.size();
    statistics.checksum = crc32c(statistics.checksum, std::as_bytes(std::span(block)));
    for (const int64_t token : block) {
      statistics.least = std::min(statistics.least, token);
      statistics.greatest = std::max(statistics.greatest, token);
      ++(token >= 0 && token < kDirect ? direct[static_cast<size_t>(token)] : others[token]);
    }
  }

  const auto total = static_cast<double>(statistics.counted);
  // Tokens that do not occur add nothing: p ln p goes to 0.
  const auto add = [&](uint64_t count) {
    if (count == 0) return;
    ++statistics.distinct;
    const double share = static_cast<double>(count) / total;
    statistics.unigram_entropy -= share * std::log(share);
  };
  for (const uint64_t count : direct) add(count);
  for (const auto& [token, count] : others) add(count);
  if (statistics.distinct == 1) statistics.unigram_entropy = 0;  // and not -0
  return statistics;
}

}  // namespace

TokenStatistics token_statistics(const TokenSource& source) {
  const uint64_t blocks = (source.token_count() + kBlockTokens - 1) / kBlockTokens;
  return statistics_of(source, blocks, kBlockTokens, [](uint64_t block) { return block * kBlockTokens; });
}

TokenStatistics sampled_statistics(const TokenSource& source) {
  const uint64_t tokens = source.token_count();
  if (tokens <= kSampledTokens) return token_statistics(source);
  constexpr uint64_t kSize = kSampledTokens / kSampledBlocks;
  // The last start is divided into quotient and rest, so that no product overflows.
  const uint64_t last = tokens - kSize;
  return statistics_of(source, kSampledBlocks, kSize, [last](uint64_t block) {
    constexpr uint64_t kSteps = kSampledBlocks - 1;
    return last / kSteps * block + last % kSteps * block / kSteps;
  });
}

// Ends with the block that holds the token.
std::optional<PlacedToken> first_foreign_token(const TokenSource& source, int64_t vocab_size) {
  const uint64_t tokens = source.token_count();
  std::vector<int64_t> block;
  for (uint64_t first = 0; first < tokens; first += block.size()) {
    block.resize(std::min(kBlockTokens, tokens - first));
    source.read_tokens(first, block);
    const auto found =
        std::ranges::find_if(block, [vocab_size](int64_t token) { return token < 0 || token >= vocab_size; });
    if (found != block.end())
      return PlacedToken{*found, first + static_cast<uint64_t>(found - block.begin())};
  }
  return std::nullopt;
}

}  // namespace hdt::training
