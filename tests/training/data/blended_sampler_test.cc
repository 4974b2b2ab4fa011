// blended_sampler_test.cc: each dataset gets its share, evenly, and every window of it in its own order.
#include "training/data/blended_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace hdt::training {
namespace {

using ::testing::HasSubstr;

// `tokens` tokens, all of them `value`.
WeightedSource source(int64_t value, size_t tokens, double weight) {
  return {std::make_shared<MemoryTokens>(std::vector<int64_t>(tokens, value)), weight};
}

constexpr SamplerOptions kBlendOptions{.seed = 5, .sequence_length = 4, .global_batch_size = 10};

TEST(BlendedSampler, GivesEachDatasetItsShareEvenly) {
  const std::vector<double> weights = {0.5, 3, 1.5};
  const auto made =
      BlendedSampler::create({source(0, 401, 0.5), source(1, 81, 3), source(2, 4001, 1.5)}, kBlendOptions);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  std::vector<double> counts(3);
  for (uint64_t number = 0; number < 3 * BlendedSampler::kPeriod; ++number) {
    std::vector<int64_t> tokens(5);
    made.value().sample(number / 10, static_cast<int64_t>(number % 10), tokens);
    ASSERT_EQ(std::set<int64_t>(tokens.begin(), tokens.end()).size(), 1u);
    ++counts[tokens[0]];
    // Never further from its share than Megatron's rule allows; a period begins anew.
    for (size_t i = 0; i < 3; ++i)
      ASSERT_NEAR(counts[i], weights[i] / 5 * static_cast<double>(number + 1), 4) << number;
  }
}

// The rule of Megatron's build_blending_indices, done by hand for 1 : 3; of equal ones the first is taken.
TEST(BlendedSampler, TakesTheDatasetThatIsFurthestBehind) {
  const auto made = BlendedSampler::create({source(0, 50, 1), source(1, 50, 3)}, kBlendOptions);
  std::vector<size_t> found;
  for (uint64_t number = 0; number < 9; ++number) found.push_back(made.value().place_of(number).source);
  EXPECT_THAT(found, ::testing::ElementsAre(1, 0, 1, 1, 0, 1, 1, 1, 0));
}

TEST(BlendedSampler, GoesThroughEachDatasetInItsOwnOrder) {
  std::vector<int64_t> ascending(1000);
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<int64_t>(i);
  const auto tokens = std::make_shared<MemoryTokens>(ascending);
  const auto alone = BatchSampler::create(tokens, kBlendOptions);
  const auto made = BlendedSampler::create({{tokens, 0.3}, source(-1, 20, 0.7)}, kBlendOptions);
  ASSERT_TRUE(alone.is_ok() && made.is_ok());
  uint64_t next = 0;
  for (uint64_t number = 0; number < 2 * BlendedSampler::kPeriod + 77; ++number) {
    std::vector<int64_t> found(5);
    made.value().sample(number / 10, static_cast<int64_t>(number % 10), found);
    if (found[0] < 0) continue;
    ASSERT_EQ(found, alone.value().sample(next / 10, static_cast<int64_t>(next % 10))) << number;
    ++next;
  }
  EXPECT_GT(next, BlendedSampler::kPeriod / 2);
}

TEST(BlendedSampler, OfOneDatasetIsItsSampler) {
  std::vector<int64_t> ascending(1000);
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<int64_t>(i);
  const auto tokens = std::make_shared<MemoryTokens>(ascending);
  const auto alone = BatchSampler::create(tokens, kBlendOptions);
  const auto made = BlendedSampler::create({{tokens, 17}}, kBlendOptions);
  ASSERT_TRUE(alone.is_ok() && made.is_ok());
  EXPECT_EQ(made.value().samples_of_one_pass(), alone.value().windows_per_epoch());
  for (uint64_t step : {uint64_t{0}, uint64_t{3}, uint64_t{100'000}}) {
    std::vector<int64_t> found(5);
    made.value().sample(step, 7, found);
    EXPECT_EQ(found, alone.value().sample(step, 7));
  }
}

TEST(BlendedSampler, RefusesWhatGivesNoSamples) {
  size_t failed = 9;
  const auto refusal = [&](const std::vector<WeightedSource>& sources) {
    return BlendedSampler::create(sources, kBlendOptions, &failed).status().message();
  };
  EXPECT_THAT(refusal({source(0, 50, 1), source(1, 3, 1)}), HasSubstr("the data holds 3 tokens"));
  EXPECT_EQ(failed, 1u);
  EXPECT_THAT(refusal({source(0, 50, 0), source(1, 50, 1)}), HasSubstr("weight 0, expected above 0"));
  EXPECT_EQ(failed, 0u);
  EXPECT_THAT(refusal({source(0, 50, 1), source(1, 50, 1e-9)}), HasSubstr("no sample of 65536"));
  EXPECT_EQ(failed, 1u);
  EXPECT_THAT(refusal({}), HasSubstr("0 datasets"));
}

}  // namespace
}  // namespace hdt::training
