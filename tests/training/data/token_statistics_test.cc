#include "training/data/token_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/crc32c.h"

namespace hdt::training {
namespace {

TEST(TokenStatistics, UniformTokensHaveTheEntropyOfTheirNumber) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 200000; ++i) tokens.push_back(i % 50);
  const TokenStatistics statistics = token_statistics(MemoryTokens(tokens));
  EXPECT_EQ(statistics.tokens, 200000u);
  EXPECT_EQ(statistics.distinct, 50u);
  EXPECT_EQ(statistics.least, 0);
  EXPECT_EQ(statistics.greatest, 49);
  EXPECT_NEAR(statistics.unigram_entropy, std::log(50.0), 1e-12);
}

TEST(TokenStatistics, UnevenTokensAndTokensOfAnySize) {
  // p = 1/2, 1/4, 1/4.
  const TokenStatistics statistics = token_statistics(MemoryTokens({7, 7, -3, int64_t{1} << 40}));
  EXPECT_NEAR(statistics.unigram_entropy, 1.5 * std::log(2.0), 1e-12);
  EXPECT_EQ(statistics.distinct, 3u);
  EXPECT_EQ(statistics.least, -3);
  EXPECT_EQ(statistics.greatest, int64_t{1} << 40);
}

TEST(TokenStatistics, OneTokenAndNoToken) {
  const TokenStatistics one = token_statistics(MemoryTokens({5, 5, 5}));
  EXPECT_EQ(one.unigram_entropy, 0);
  EXPECT_FALSE(std::signbit(one.unigram_entropy));
  const TokenStatistics none = token_statistics(MemoryTokens({}));
  EXPECT_EQ(none.tokens, 0u);
  EXPECT_EQ(none.distinct, 0u);
  EXPECT_EQ(none.unigram_entropy, 0);
}

TEST(TokenStatistics, TheChecksumKnowsTheOrderAndNotTheBlocks) {
  std::vector<int64_t> tokens(200'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * i % 257);
  const uint32_t whole = token_statistics(MemoryTokens(tokens)).checksum;
  EXPECT_EQ(whole, crc32c(0, std::as_bytes(std::span(tokens))));
  std::swap(tokens[70'000], tokens[70'001]);
  ASSERT_NE(tokens[70'000], tokens[70'001]);
  EXPECT_NE(token_statistics(MemoryTokens(tokens)).checksum, whole);
}

// Notes what is read of it.
class CountedTokens final : public TokenSource {
 public:
  explicit CountedTokens(uint64_t tokens) : tokens_(tokens) {}
  uint64_t token_count() const override { return tokens_; }
  void read_tokens(uint64_t first, std::span<int64_t> out) const override {
    ASSERT_LE(first + out.size(), tokens_);
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>((first + i) % 1000);
    read_ += out.size();
    least_ = std::min(least_, first);
    greatest_ = std::max(greatest_, first + out.size());
  }
  uint64_t read() const { return read_; }
  uint64_t least() const { return least_; }
  uint64_t greatest() const { return greatest_; }

 private:
  uint64_t tokens_;
  mutable uint64_t read_ = 0;
  mutable uint64_t least_ = std::numeric_limits<uint64_t>::max();
  mutable uint64_t greatest_ = 0;
};

TEST(TokenStatistics, ASampleCostsTheSameForEverySize) {
  for (const uint64_t tokens : {kSampledTokens + 1, uint64_t{1'000'000'007}, uint64_t{1} << 60}) {
    const CountedTokens source(tokens);
    const TokenStatistics statistics = sampled_statistics(source);
    EXPECT_EQ(statistics.tokens, tokens);
    EXPECT_EQ(statistics.counted, kSampledTokens);
    EXPECT_EQ(source.read(), kSampledTokens);
    EXPECT_EQ(source.least(), 0u);
    EXPECT_EQ(source.greatest(), tokens) << "the end was not read";
    EXPECT_NEAR(statistics.unigram_entropy, std::log(1000.0), 1e-3);
  }
}

TEST(TokenStatistics, AShortStreamIsItsOwnSample) {
  const CountedTokens source(kSampledTokens);
  const TokenStatistics sampled = sampled_statistics(source);
  const TokenStatistics whole = token_statistics(source);
  EXPECT_EQ(sampled.counted, kSampledTokens);
  EXPECT_EQ(sampled.checksum, whole.checksum);
  EXPECT_EQ(sampled.unigram_entropy, whole.unigram_entropy);
}

}  // namespace
}  // namespace hdt::training
