// exact_sum_test.cc: sums of doubles whose order must not matter.
#include "training/numbers/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace hdt::training {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  const auto numbers = sum.numbers();
  return ExactSum::value_of(numbers);
}

TEST(ExactSumTest, IsExactWhereASumIsADouble) {
  const double smallest = std::numeric_limits<double>::denorm_min();
  const double largest = std::numeric_limits<double>::max();
  for (const double value :
       {0.0, 1.0, -1.0, 0.1, -1e-300, 1e300, smallest, -smallest, largest, -largest,
        std::numeric_limits<double>::min(), 0x1.fffffffffffffp31, -0x1.fffffffffffffp-33})
    EXPECT_EQ(sum_of({value}), value);
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({1e300, 1, -1e300}), 1);
  EXPECT_EQ(sum_of({largest, smallest, -largest}), smallest);
  EXPECT_EQ(sum_of({largest, largest, -largest}), largest);
  EXPECT_EQ(sum_of({-1, 0x1p-60, -0x1p-60}), -1);
  EXPECT_EQ(sum_of({largest, largest}), kInfinity);
}

TEST(ExactSumTest, InfinitiesAndNansStay) {
  EXPECT_EQ(sum_of({1, kInfinity}), kInfinity);
  EXPECT_EQ(sum_of({-kInfinity, 5}), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({std::nan(""), 1})));
}

// As ranks do: each adds some of the numbers, and what stands for their sums is added in double.
TEST(ExactSumTest, NeitherOrderNorPartsChangeABit) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 20; ++round) {
    std::vector<double> values(1000);
    for (double& value : values) value = std::ldexp(normal(random), static_cast<int>(random() % 200) - 100);
    // Cancels most of it.
    values.push_back(-std::round(sum_of(values)));
    const double expected = sum_of(values);
    long double reference = 0;
    std::ranges::sort(values, {}, [](double value) { return std::abs(value); });
    for (const double value : values) reference += value;
    EXPECT_NEAR(expected, static_cast<double>(reference), 1e-15 * 0x1p100);
    std::ranges::shuffle(values, random);
    EXPECT_EQ(sum_of(values), expected);
    std::vector<ExactSum> ranks(1 + random() % 7);
    for (const double value : values) {
      ExactSum one;
      one.add(value);
      ranks[random() % ranks.size()].add(one);
    }
    std::array<double, ExactSum::kNumbers> totals = {};
    for (const ExactSum& rank : ranks) {
      const auto numbers = rank.numbers();
      std::ranges::transform(totals, numbers, totals.begin(), std::plus<>());
    }
    EXPECT_EQ(ExactSum::value_of(totals), expected);
  }
}

}  // namespace
}  // namespace hdt::training
