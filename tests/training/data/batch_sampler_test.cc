#include "training/data/batch_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "training/data/keyed_permutation.h"

namespace hdt::training {
namespace {

using ::testing::HasSubstr;

// A stream in which each token is its own position.
std::shared_ptr<const TokenSource> positions(int64_t count) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return std::make_shared<MemoryTokens>(std::move(tokens));
}

BatchSampler sampler(int64_t tokens, const SamplerOptions& options) {
  auto created = BatchSampler::create(positions(tokens), options);
  EXPECT_TRUE(created.is_ok()) << created.status().to_string();
  return created.take();
}

TEST(KeyedPermutation, IsAPermutationOfEverySize) {
  std::vector<uint64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {1023, 1024, 1025, 4096, 4097, 100003});
  for (const uint64_t size : sizes) {
    for (const uint64_t key : {uint64_t{0}, uint64_t{1}, uint64_t{0x123456789abcdef0}}) {
      const KeyedPermutation permutation(key, size);
      std::vector<bool> seen(size);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t image = permutation(i);
        ASSERT_LT(image, size) << "size " << size << " key " << key;
        ASSERT_FALSE(seen[image]) << "size " << size << " key " << key;
        seen[image] = true;
      }
    }
  }
}

TEST(KeyedPermutation, HugeSizesStayInside) {
  for (const uint64_t size : {~uint64_t{0}, (uint64_t{1} << 63) + 1, uint64_t{1} << 40}) {
    const KeyedPermutation permutation(7, size);
    std::set<uint64_t> images;
    for (uint64_t i = 0; i < 1000; ++i) images.insert(permutation(i));
    EXPECT_EQ(images.size(), 1000u);
    EXPECT_LT(*images.rbegin(), size);
  }
}

TEST(KeyedPermutation, KeysSpreadEachPositionEvenly) {
  // Over 10,000 keys each of 10 images is expected 1,000 times with a standard deviation of 30.
  for (uint64_t position = 0; position < 10; ++position) {
    std::vector<int> counts(10);
    for (uint64_t key = 0; key < 10000; ++key) ++counts[KeyedPermutation(mix_bits(key), 10)(position)];
    for (const int count : counts) EXPECT_NEAR(count, 1000, 180) << "position " << position;
  }
}

TEST(BatchSampler, EachEpochVisitsEveryWindowOnce) {
  // 1,000 tokens: 62 windows of 16 with a target each, 7 tokens over. 62 samples are 31 steps of 2.
  const BatchSampler batches = sampler(1000, {.seed = 3, .sequence_length = 16, .global_batch_size = 2});
  ASSERT_EQ(batches.windows_per_epoch(), 62u);
  std::set<std::vector<uint64_t>> orders;
  std::set<uint64_t> offsets;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<uint64_t> order;
    for (uint64_t number = epoch * 62; number < (epoch + 1) * 62; ++number) {
      EXPECT_EQ(batches.epoch(number / 2, static_cast<int64_t>(number % 2)), epoch);
      order.push_back(batches.first_token(number / 2, static_cast<int64_t>(number % 2)));
    }
    std::vector<uint64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    offsets.insert(sorted.front());
    EXPECT_LE(sorted.back() + 17, 1000u);
    for (size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], sorted.front() + 16 * i);
    EXPECT_NE(order, sorted);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 20u);
  EXPECT_GT(offsets.size(), 3u);  // of the 8 possible ones
}

TEST(BatchSampler, ASampleIsTheTokensAtItsPlace) {
  const BatchSampler batches = sampler(500, {.seed = 9, .sequence_length = 7, .global_batch_size = 5});
  for (uint64_t step = 0; step < 100; ++step) {
    for (int64_t index = 0; index < 5; ++index) {
      const auto tokens = batches.sample(step, index);
      ASSERT_EQ(tokens.size(), 8u);
      for (size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(tokens[i], static_cast<int64_t>(batches.first_token(step, index) + i));
      }
    }
  }
}

TEST(BatchSampler, DependsOnSampleNumberAloneNotOnTheLayout) {
  const SamplerOptions options{.seed = 42, .sequence_length = 10, .global_batch_size = 12};
  const BatchSampler one = sampler(5000, options);
  const BatchSampler other = sampler(5000, options);
  // One process takes the batch in order; two replicas of 8 and 4 samples take it from the end, steps mixed.
  std::map<std::pair<uint64_t, int64_t>, std::vector<int64_t>> whole;
  for (uint64_t step = 0; step < 60; ++step) {
    for (int64_t index = 0; index < 12; ++index) whole[{step, index}] = one.sample(step, index);
  }
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{8, 12}, {0, 8}}) {
    for (uint64_t step = 60; step-- > 0;) {
      for (int64_t index = last; index-- > first;) {
        EXPECT_EQ(other.sample(step, index), (whole[{step, index}])) << step << " " << index;
      }
    }
  }
  const BatchSampler halves = sampler(5000, {.seed = 42, .sequence_length = 10, .global_batch_size = 6});
  EXPECT_EQ(halves.sample(7, 2), one.sample(3, 8));  // number 44 either way
}

TEST(BatchSampler, TheOrderIsPinned) {
  // A run that is resumed with another version must see the data it would have seen: these may never change.
  const BatchSampler batches = sampler(1000, {.seed = 1234, .sequence_length = 16, .global_batch_size = 4});
  std::vector<uint64_t> firsts;
  for (const uint64_t step : {0, 1, 100}) {
    for (int64_t index = 0; index < 4; ++index) firsts.push_back(batches.first_token(step, index));
  }
  EXPECT_THAT(firsts, testing::ElementsAre(658, 562, 146, 2, 578, 98, 178, 706, 853, 357, 645, 741));
}

TEST(BatchSampler, SeedsGiveOtherOrders) {
  std::set<std::vector<int64_t>> firsts;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const BatchSampler batches =
        sampler(100000, {.seed = seed, .sequence_length = 3, .global_batch_size = 1});
    firsts.insert(batches.sample(0, 0));
  }
  EXPECT_GT(firsts.size(), 45u);
}

TEST(BatchSampler, TheSmallestStreamAndRefusals) {
  const BatchSampler batches = sampler(5, {.seed = 0, .sequence_length = 4, .global_batch_size = 3});
  EXPECT_EQ(batches.windows_per_epoch(), 1u);
  EXPECT_EQ(batches.sample(1000, 2), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  const auto message = [](int64_t tokens, const SamplerOptions& options) {
    const auto created = BatchSampler::create(positions(tokens), options);
    return created.is_ok() ? "accepted" : created.status().message();
  };
  EXPECT_THAT(message(4, {.sequence_length = 4, .global_batch_size = 1}),
              HasSubstr("the data holds 4 tokens, expected at least 5"));
  EXPECT_THAT(message(0, {.sequence_length = 1, .global_batch_size = 1}),
              HasSubstr("the data holds 0 tokens"));
  EXPECT_THAT(message(9, {.sequence_length = 0, .global_batch_size = 1}),
              HasSubstr("sequence length 0, expected 1"));
  EXPECT_THAT(message(9, {.sequence_length = 1, .global_batch_size = -1}), HasSubstr("global batch size -1"));
}

}  // namespace
}  // namespace hdt::training
