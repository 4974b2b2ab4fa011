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
  EXPECT_EQ(load_integer(HDT_INT32, &element), -1);
  store_integer(HDT_INT64, static_cast<uint64_t>(std::numeric_limits<int64_t>::min()), &element);
  EXPECT_EQ(load_integer(HDT_INT64, &element), std::numeric_limits<int64_t>::min());
}

}  // namespace
}  // namespace hdt::bench
