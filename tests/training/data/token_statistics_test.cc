#include "training/data/token_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
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

}  // namespace
}  // namespace hdt::training
