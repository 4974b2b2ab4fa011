// kernels_special_test.cc: values where arithmetic goes wrong: every 16-bit pattern, ties, denormals,
// overflow, NaN, infinity, integers that wrap.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "collectives/kernels.h"
#include "tests/unit/collectives/kernels_fixture.h"
#include "tests/unit/collectives/scalar_reference.h"

namespace hdt::collectives::testing {
namespace {

template <typename T>
std::vector<T> combine(DataType type, ReduceOp op, const std::vector<std::vector<T>>& sources) {
  std::vector<const void*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  std::vector<T> result(sources[0].size());
  void* const results[] = {result.data()};
  reduce(type, op, pointers, results, result.size());
  return result;
}

std::vector<uint16_t> every_pattern() {
  std::vector<uint16_t> all(65536);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class SpecialValues : public KernelsTest {};

TEST_P(SpecialValues, Every16BitNumberSurvivesAddingNothing) {
  const auto all = every_pattern();
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    const auto result =
        combine<uint16_t>(type, ReduceOp::kSum, {all, std::vector<uint16_t>(all.size(), 0x8000)});  // -0
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(same_element(type, &result[i], &all[i]))
          << name_of(type) << " " << i << " became " << result[i];
    }
  }
}

// Sums of every number with some others, some of them far smaller: ties, carries into the exponent, overflow.
TEST_P(SpecialValues, SumsOf16BitNumbersRoundToNearestEven) {
  const auto all = every_pattern();
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    for (const uint16_t other : {0x0001, 0x0401, 0x2C00, 0x3C01, 0x3F81, 0x7BFF, 0x7F7F, 0x8003, 0xC301}) {
      const auto result =
          combine<uint16_t>(type, ReduceOp::kSum, {all, std::vector<uint16_t>(all.size(), other)});
      for (size_t i = 0; i < all.size(); ++i) {
        const std::array<const void*, 2> at{&all[i], &other};
        uint16_t expected = 0;
        reduce_element(type, ReduceOp::kSum, at, &expected);
        ASSERT_TRUE(same_element(type, &result[i], &expected))
            << name_of(type) << " " << i << " + " << other << " is " << result[i] << ", not " << expected;
      }
    }
  }
}

TEST_P(SpecialValues, SixteenBitSumsRoundOnlyOnce) {
  // 2048 + 1 + 1 in fp16: 2049 is a tie to 2048, so rounding twice would lose both ones.
  const std::vector<std::vector<uint16_t>> halves{{0x6800}, {0x3C00}, {0x3C00}};
  EXPECT_EQ(combine(DataType::kFloat16, ReduceOp::kSum, halves)[0], 0x6801);
  // 256 + 1 + 1 in bf16.
  const std::vector<std::vector<uint16_t>> brains{{0x4380}, {0x3F80}, {0x3F80}};
  EXPECT_EQ(combine(DataType::kBFloat16, ReduceOp::kSum, brains)[0], 0x4381);
}

// Every pair, so every tie, denormal, overflow, infinity and NaN. Vectors with the last two may go another
// way than those without: so once with all of them, and once with numbers alone.
void expect_nearest(DataType type, ReduceOp op, const std::vector<uint8_t>& numbers) {
  for (const uint8_t other : numbers) {
    const auto result = combine<uint8_t>(type, op, {numbers, std::vector<uint8_t>(numbers.size(), other)});
    for (size_t i = 0; i < numbers.size(); ++i) {
      const std::array<const void*, 2> at{&numbers[i], &other};
      uint8_t expected = 0;
      reduce_element(type, op, at, &expected);
      ASSERT_TRUE(same_element(type, &result[i], &expected))
          << name_of(type) << " " << name_of(op) << " of " << int{numbers[i]} << " and " << int{other}
          << " is " << int{result[i]} << ", not " << int{expected};
    }
  }
}

TEST_P(SpecialValues, EverySumAndProductOf8BitNumbersIsTheNearest) {
  for (const DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    std::vector<uint8_t> all(256);
    std::iota(all.begin(), all.end(), 0);
    std::vector<uint8_t> finite = all;
    const int largest = type == DataType::kFloat8E4M3 ? 0x7E : 0x7B;
    std::erase_if(finite, [&](uint8_t bits) { return (bits & 0x7F) > largest; });
    finite.resize(all.size());  // whole vectors; a rest of one goes another way, too
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
      ASSERT_NO_FATAL_FAILURE(expect_nearest(type, op, all));
      ASSERT_NO_FATAL_FAILURE(expect_nearest(type, op, finite));
    }
  }
}

TEST_P(SpecialValues, EightBitNumbersSaturateButInfinityAndNaNStay) {
  EXPECT_EQ(combine<uint8_t>(DataType::kFloat8E4M3, ReduceOp::kSum, {{0x7E}, {0x7E}})[0], 0x7E);
  EXPECT_EQ(combine<uint8_t>(DataType::kFloat8E4M3, ReduceOp::kSum, {{0xFE}, {0xFE}})[0], 0xFE);
  EXPECT_EQ(combine<uint8_t>(DataType::kFloat8E4M3, ReduceOp::kSum, {{0x7F}, {0x38}})[0] & 0x7F, 0x7F);
  EXPECT_EQ(combine<uint8_t>(DataType::kFloat8E5M2, ReduceOp::kSum, {{0x7B}, {0x7B}})[0], 0x7B);
  EXPECT_EQ(combine<uint8_t>(DataType::kFloat8E5M2, ReduceOp::kSum, {{0x7C}, {0x3C}})[0], 0x7C);
  const auto none = combine<uint8_t>(DataType::kFloat8E5M2, ReduceOp::kSum, {{0x7C}, {0xFC}})[0];
  EXPECT_TRUE(is_nan(DataType::kFloat8E5M2, &none));
}

TEST_P(SpecialValues, OverflowIsInfinity) {
  EXPECT_EQ(combine<uint16_t>(DataType::kFloat16, ReduceOp::kSum, {{0x7BFF}, {0x7BFF}})[0], 0x7C00);
  EXPECT_EQ(combine<uint16_t>(DataType::kFloat16, ReduceOp::kProd, {{0xFBFF}, {0x7BFF}})[0], 0xFC00);
  EXPECT_EQ(combine<uint16_t>(DataType::kBFloat16, ReduceOp::kSum, {{0x7F7F}, {0x7F7F}})[0], 0x7F80);
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_EQ(combine<float>(DataType::kFloat32, ReduceOp::kSum, {{kMax}, {kMax}})[0], HUGE_VALF);
}

TEST_P(SpecialValues, InfinitiesOfOppositeSignAreNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(
      std::isnan(combine<double>(DataType::kFloat64, ReduceOp::kSum, {{kInfinity}, {-kInfinity}})[0]));
  const auto half = combine<uint16_t>(DataType::kFloat16, ReduceOp::kSum, {{0x7C00}, {0xFC00}})[0];
  EXPECT_TRUE(is_nan(DataType::kFloat16, &half));
  const auto brain = combine<uint16_t>(DataType::kBFloat16, ReduceOp::kSum, {{0x7F80}, {0xFF80}})[0];
  EXPECT_TRUE(is_nan(DataType::kBFloat16, &brain));
}

TEST_P(SpecialValues, DenormalsAreKept) {
  EXPECT_EQ(combine<uint16_t>(DataType::kFloat16, ReduceOp::kSum, {{0x0001}, {0x0002}})[0], 0x0003);
  EXPECT_EQ(combine<uint16_t>(DataType::kBFloat16, ReduceOp::kSum, {{0x0001}, {0x0002}})[0], 0x0003);
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(combine<float>(DataType::kFloat32, ReduceOp::kSum, {{kSmallest}, {kSmallest}})[0], 2 * kSmallest);
}

TEST_P(SpecialValues, IntegersWrap) {
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(combine<int32_t>(DataType::kInt32, ReduceOp::kSum, {{kMax32}, {1}})[0],
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(combine<int64_t>(DataType::kInt64, ReduceOp::kSum, {{kMax64}, {1}})[0],
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(combine<int32_t>(DataType::kInt32, ReduceOp::kProd, {{kMax32}, {kMax32}})[0], 1);
  EXPECT_EQ(combine<int64_t>(DataType::kInt64, ReduceOp::kProd, {{kMax64}, {kMax64}})[0], 1);
}

TEST_P(SpecialValues, IntegersDivideTowardZero) {
  const std::vector<int64_t> values{7, -7, 6, -6, std::numeric_limits<int64_t>::min()};
  std::vector<int64_t> result(values.size());
  copy_divided(DataType::kInt64, values.data(), result.data(), values.size(), 4);
  EXPECT_EQ(result, (std::vector<int64_t>{1, -1, 1, -1, std::numeric_limits<int64_t>::min() / 4}));
}

HDT_INSTANTIATE_FOR_TARGETS(SpecialValues);

}  // namespace
}  // namespace hdt::collectives::testing
