// element_test.cc: conversions of the reference result, against known encodings.
#include "bench/commbench/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hdt::bench {
namespace {

uint16_t bits_of(hdtDataType_t type, double value) {
  uint16_t bits = 0;
  store_float(type, value, &bits);
  return bits;
}

TEST(Float16, HasTheKnownEncodings) {
  EXPECT_EQ(bits_of(HDT_FLOAT16, 1), 0x3c00);
  EXPECT_EQ(bits_of(HDT_FLOAT16, -2), 0xc000);
  EXPECT_EQ(bits_of(HDT_FLOAT16, 65504), 0x7bff);
  EXPECT_EQ(bits_of(HDT_FLOAT16, 65520), 0x7c00);  // rounds to infinity
  EXPECT_EQ(bits_of(HDT_FLOAT16, std::ldexp(1, -24)), 0x0001);
  EXPECT_EQ(bits_of(HDT_FLOAT16, std::ldexp(1, -14)), 0x0400);
  EXPECT_EQ(bits_of(HDT_FLOAT16, 2049), 0x6800);  // halfway: to even
  EXPECT_EQ(bits_of(HDT_FLOAT16, 2051), 0x6802);
}

TEST(BFloat16, HasTheKnownEncodings) {
  EXPECT_EQ(bits_of(HDT_BFLOAT16, 1), 0x3f80);
  EXPECT_EQ(bits_of(HDT_BFLOAT16, -0.0), 0x8000);
  EXPECT_EQ(bits_of(HDT_BFLOAT16, 257), 0x4380);  // halfway: to even
  EXPECT_EQ(bits_of(HDT_BFLOAT16, 259), 0x4382);
}

TEST(Float8, HasTheKnownEncodings) {
  EXPECT_EQ(bits_of(HDT_FLOAT8E4M3, 1), 0x38);
  EXPECT_EQ(bits_of(HDT_FLOAT8E4M3, -448), 0xfe);
  EXPECT_EQ(bits_of(HDT_FLOAT8E4M3, std::ldexp(1, -9)), 0x01);
  EXPECT_EQ(bits_of(HDT_FLOAT8E4M3, 17), 0x58);  // halfway: to even
  EXPECT_TRUE(std::isnan(load_float(HDT_FLOAT8E4M3, "\x7f")));
  EXPECT_EQ(bits_of(HDT_FLOAT8E5M2, 1), 0x3c);
  EXPECT_EQ(bits_of(HDT_FLOAT8E5M2, 57344), 0x7b);
  EXPECT_EQ(bits_of(HDT_FLOAT8E5M2, std::ldexp(1, -16)), 0x01);
  EXPECT_TRUE(std::isinf(load_float(HDT_FLOAT8E5M2, "\x7c")));
}

TEST(Floats, AllFiniteSixteenBitValuesAreReadBack) {
  for (hdtDataType_t type : {HDT_FLOAT16, HDT_BFLOAT16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto element = static_cast<uint16_t>(bits);
      const double value = load_float(type, &element);
      if (!std::isnan(value)) {
        ASSERT_EQ(bits_of(type, value), element);
      }
    }
  }
}

TEST(Integers, WrapAndKeepTheirSign) {
  uint64_t element = 0;
  store_integer(HDT_INT32, 0x1ffffffffu, &element);
  EXPECT_EQ(load_integer(HDT_INT32, &element), static_cast<uint64_t>(-1));
  store_integer(HDT_INT64, static_cast<uint64_t>(std::numeric_limits<int64_t>::min()), &element);
  EXPECT_EQ(load_integer(HDT_INT64, &element), uint64_t{1} << 63);
  store_integer(HDT_UINT8, 0x1ff, &element);
  EXPECT_EQ(load_integer(HDT_UINT8, &element), 255u);
  EXPECT_EQ(load_integer(HDT_INT8, &element), static_cast<uint64_t>(-1));
}

}  // namespace
}  // namespace hdt::bench
