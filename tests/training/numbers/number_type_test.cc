// number_type_test.cc: fp16 and the conversions among types.
#include "training/numbers/number_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace hdt::training {
namespace {

float of_bits(uint32_t bits) {
  Float16 value;
  value.bits = static_cast<uint16_t>(bits);
  return static_cast<float>(value);
}

TEST(NumberTypes, AreFoundByTheirNames) {
  for (const NumberType type : kNumberTypes) EXPECT_EQ(number_type_of(number_type_name(type)), type);
  for (const char* other : {"", "fp", "fp8", "fp321", "FP32"}) EXPECT_EQ(number_type_of(other), std::nullopt);
}

TEST(NumberTypes, GradientsAreOfTheParametersTypeOrTheStates) {
  EXPECT_TRUE(go_together({NumberType::kBFloat16, NumberType::kFloat32}));
  EXPECT_TRUE(go_together({NumberType::kFloat16, NumberType::kFloat16}));
  EXPECT_FALSE(go_together({NumberType::kFloat16, NumberType::kBFloat16}));
  EXPECT_FALSE(go_together({NumberType::kFloat64, NumberType::kFloat32}));
  EXPECT_FALSE(go_together({NumberType::kFloat32, NumberType::kFloat64}));
}

TEST(Float16Test, EveryNumberIsWhatItsBitsSay) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = of_bits(bits);
    const auto exponent = static_cast<int>((bits >> 10) & 0x1FU);
    const auto mantissa = static_cast<float>(bits & 0x3FFU);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
    } else {
      const float expected =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(std::abs(value), expected);
    }
    EXPECT_EQ(std::signbit(value), bits >= 0x8000);
    // And back.
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(value))));
    else
      EXPECT_EQ(Float16(value).bits, bits);
  }
}

TEST(Float16Test, RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = of_bits(bits);
    const float high = of_bits(bits + 1);
    const float middle = (low + high) / 2;  // exact in fp32
    EXPECT_EQ(Float16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(Float16(std::nextafter(middle, 0.0F)).bits, bits);
    EXPECT_EQ(Float16(std::nextafter(middle, high)).bits, bits + 1);
    EXPECT_EQ(Float16(-middle).bits, 0x8000U | (bits % 2 == 0 ? bits : bits + 1));
  }
  EXPECT_EQ(static_cast<float>(Float16(65519)), 65504);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520))));
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(std::numeric_limits<float>::max()))));
  EXPECT_EQ(Float16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(ConvertTest, KeepsWhatTheTargetCanHold) {
  const std::vector<double> doubles = {1.0 + 0x1p-50, -0x1p-1060, 65504, 1e300};
  std::vector<double> same(4);
  convert(doubles, same);
  EXPECT_EQ(same, doubles);
  std::vector<float> floats(4);
  convert(doubles, floats);
  EXPECT_EQ(floats, (std::vector<float>{1, -0.0F, 65504, std::numeric_limits<float>::infinity()}));
  std::vector<Float16> halves(4);
  convert(doubles, halves);
  convert(halves, same);
  EXPECT_EQ(same, (std::vector<double>{1, -0.0, 65504, std::numeric_limits<double>::infinity()}));
  const std::vector<float> exact = {0.1F, 3e-40F, -1e38F};
  std::vector<double> wide(3);
  convert(exact, wide);
  EXPECT_EQ(wide, (std::vector<double>{double{0.1F}, double{3e-40F}, double{-1e38F}}));
}

}  // namespace
}  // namespace hdt::training
