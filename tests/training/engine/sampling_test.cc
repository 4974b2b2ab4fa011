// sampling_test.cc: which tokens may be drawn, and how often they are.
#include "training/engine/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/training/engine/layout_table.h"

namespace hdt::training::testing {
namespace {

std::vector<int64_t> tokens_of(const std::vector<Candidate>& candidates) {
  std::vector<int64_t> tokens;
  for (const Candidate& candidate : candidates) tokens.push_back(candidate.token);
  return tokens;
}

TEST(SamplingTest, DrawsFromTheSoftmax) {
  const std::array<float, 3> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  EXPECT_EQ(sample_token(logits, {}, 0.19), 0);
  EXPECT_EQ(sample_token(logits, {}, 0.21), 1);
  EXPECT_EQ(sample_token(logits, {}, 0.69), 1);
  EXPECT_EQ(sample_token(logits, {}, 0.71), 2);
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 0.01}, 0.99), 1);  // cold: the likeliest
}

TEST(SamplingTest, LimitsKeepTheLikeliest) {
  const std::array<float, 4> logits = {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};
  using Tokens = std::vector<int64_t>;
  EXPECT_EQ(tokens_of(sampling_candidates(logits, {.top_k = 2})), (Tokens{1, 3}));
  EXPECT_EQ(tokens_of(sampling_candidates(logits, {.top_k = 9})), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(tokens_of(sampling_candidates(logits, {.top_p = 0.35})), (Tokens{1}));
  EXPECT_EQ(tokens_of(sampling_candidates(logits, {.top_p = 0.45})), (Tokens{1, 3}));
  EXPECT_EQ(tokens_of(sampling_candidates(logits, {.top_p = 0.75})), (Tokens{1, 3, 2}));
  EXPECT_EQ(tokens_of(sampling_candidates(logits, {.top_p = 1})), (Tokens{0, 1, 2, 3}));
  // The mass is that of what top_k has left: 0.4 of 0.7.
  EXPECT_EQ(tokens_of(sampling_candidates(logits, {.top_k = 2, .top_p = 0.5})), (Tokens{1}));
  // A draw with a limit: the likeliest first.
  EXPECT_EQ(sample_token(logits, {.top_k = 2}, 0.56), 1);
  EXPECT_EQ(sample_token(logits, {.top_k = 2}, 0.58), 3);
}

TEST(SamplingTest, LogitsThatAreNoNumbersAreNeverDrawn) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 0}, Sampling{.top_k = 3}}) {
    for (const double uniform : {0.0, 0.5, 0.999999}) {
      EXPECT_EQ(sample_token(std::array{kNan, 1.0F, -kInfinity, kNan}, sampling, uniform), 1);
      EXPECT_EQ(sample_token(std::array{kNan, kNan}, sampling, uniform), 0);
      EXPECT_EQ(sample_token(std::array{0.0F, kInfinity}, sampling, uniform), 1);
    }
  }
}

// For any logits: the kept tokens are the likeliest, have the mass, and have it no more without the last one.
TEST(SamplingTest, KeepsTheSmallestSetWithTheMass) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> logits(1 + random() % 60);
    const float width = std::array{0.0F, 0.5F, 3.0F, 40.0F}[random() % 4];
    for (float& logit : logits) logit = std::uniform_real_distribution<float>(-1, 1)(random) * width;
    if (round % 3 == 0) logits.back() = logits.front();  // tokens that are alike
    const double temperature = std::uniform_real_distribution<double>(0.2, 2)(random);
    const double top_p = std::uniform_real_distribution<double>(0.01, 0.99)(random);
    const auto all = sampling_candidates(logits, {.temperature = temperature});
    ASSERT_EQ(all.size(), logits.size());
    double total = 0;
    for (const Candidate& candidate : all) total += candidate.weight;
    const auto kept = sampling_candidates(logits, {.temperature = temperature, .top_p = top_p});
    ASSERT_FALSE(kept.empty());
    double mass = 0;
    std::vector<bool> in(logits.size());
    float least = logits[kept.front().token];
    for (const Candidate& candidate : kept) {
      EXPECT_FALSE(in[candidate.token]);
      in[candidate.token] = true;
      least = std::min(least, logits[candidate.token]);
      mass += candidate.weight;
    }
    constexpr double kRounding = 1e-9;
    EXPECT_GE(mass, (top_p - kRounding) * total);
    EXPECT_LT(mass - kept.back().weight, (top_p + kRounding) * total);
    for (size_t token = 0; token < logits.size(); ++token) {
      if (!in[token]) {
        EXPECT_LE(logits[token], least);
      }
    }
    // One token is what greedy takes, and a draw is always one of those that are kept.
    const double uniform = std::uniform_real_distribution<double>(0, 1)(random);
    EXPECT_EQ(sample_token(logits, {.temperature = temperature, .top_k = 1}, uniform),
              sample_token(logits, {.temperature = 0}, 0));
    EXPECT_TRUE(in[sample_token(logits, {.temperature = temperature, .top_p = top_p}, uniform)]);
  }
}

}  // namespace
}  // namespace hdt::training::testing
