// pattern_test.cc: results are exact in any order of reduction, and every single wrong element is counted.
#include "bench/commbench/pattern.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "bench/commbench/element.h"
#include "bench/commbench/names.h"

namespace hdt::bench {
namespace {

constexpr size_t kElements = 3000;

// Combines contributions from the last rank to the first and rounds to the type after every step: the order
// and the rounding furthest from the reference's.
std::vector<std::byte> reduce_backwards(Pattern& pattern, hdtDataType_t type, hdtRedOp_t op, int ranks) {
  const size_t bytes = element_bytes(type);
  std::vector<std::byte> result(kElements * bytes), next(kElements * bytes);
  pattern.contribution(ranks - 1).fill(result.data(), 0, kElements);
  for (int rank = ranks - 2; rank >= 0; --rank) {
    pattern.contribution(rank).fill(next.data(), 0, kElements);
    for (size_t i = 0; i < kElements; ++i) {
      std::byte* a = result.data() + i * bytes;
      const double x = load_float(type, a), y = load_float(type, next.data() + i * bytes);
      store_float(type,
                  op == HDT_PROD  ? x * y
                  : op == HDT_MIN ? std::min(x, y)
                  : op == HDT_MAX ? std::max(x, y)
                                  : x + y,
                  a);
    }
  }
  if (op == HDT_AVG) {
    for (size_t i = 0; i < kElements; ++i) {
      std::byte* a = result.data() + i * bytes;
      store_float(type, load_float(type, a) / ranks, a);
    }
  }
  return result;
}

TEST(Pattern, FloatResultsDoNotDependOnTheOrder) {
  for (hdtDataType_t type :
       {HDT_FLOAT16, HDT_BFLOAT16, HDT_FLOAT32, HDT_FLOAT64, HDT_FLOAT8E4M3, HDT_FLOAT8E5M2}) {
    for (hdtRedOp_t op : all_ops()) {
      if (is_bitwise(op)) continue;
      for (int ranks : {1, 2, 3, 7, 16, 64, 300}) {
        Pattern pattern(type, op, ranks, 1, kElements);
        const std::vector<std::byte> result = reduce_backwards(pattern, type, op, ranks);
        EXPECT_EQ(pattern.reduced().count_wrong(result.data(), 0, kElements), 0u)
            << name_of(type) << " " << name_of(op) << " " << ranks;
      }
    }
  }
}

TEST(Pattern, EveryRankMattersToTheResult) {
  for (hdtDataType_t type : all_types()) {
    for (hdtRedOp_t op : {HDT_SUM, HDT_AVG, HDT_PROD, HDT_BXOR}) {
      if (is_bitwise(op) && !is_integer(type)) continue;
      constexpr int kRanks = 40;
      Pattern pattern(type, op, kRanks, 1, kElements);
      std::vector<std::byte> one(kElements * element_bytes(type));
      for (int rank = 0; rank < kRanks; ++rank) {
        pattern.contribution(rank).fill(one.data(), 0, kElements);
        size_t neutral = 0;
        for (size_t i = 0; i < kElements; ++i) {
          const std::byte* at = one.data() + i * element_bytes(type);
          const double value = is_integer(type)
                                   ? static_cast<double>(static_cast<int64_t>(load_integer(type, at)))
                                   : load_float(type, at);
          neutral += value == (op == HDT_PROD ? 1 : 0) ? 1 : 0;
        }
        // Sums of fp8 are exact for a few ranks only: the others sit out.
        const size_t most = kElements * (significand_bits(type) < 7 ? 19 : 15) / 20;
        EXPECT_LT(neutral, most) << name_of(type) << " " << name_of(op) << " rank " << rank;
      }
    }
  }
}

TEST(Pattern, IntegersWrap) {
  Pattern pattern(HDT_INT32, HDT_SUM, 2, 1, kElements);
  std::vector<int32_t> a(kElements), b(kElements), sum(kElements);
  pattern.contribution(0).fill(a.data(), 0, kElements);
  pattern.contribution(1).fill(b.data(), 0, kElements);
  size_t wrapped = 0;
  for (size_t i = 0; i < kElements; ++i) {
    sum[i] = static_cast<int32_t>(static_cast<uint32_t>(a[i]) + static_cast<uint32_t>(b[i]));
    wrapped += int64_t{a[i]} + b[i] != sum[i] ? 1 : 0;
  }
  EXPECT_GT(wrapped, 0u);
  EXPECT_EQ(pattern.reduced().count_wrong(sum.data(), 0, kElements), 0u);
}

TEST(Sequence, FindsEachSingleWrongElement) {
  constexpr size_t kFew = 500;  // all of them are looked at for each
  for (hdtDataType_t type : all_types()) {
    Pattern pattern(type, HDT_SUM, 4, 1, kFew);
    const size_t bytes = element_bytes(type);
    std::vector<std::byte> data(kFew * bytes);
    pattern.reduced().fill(data.data(), 0, kFew);
    ASSERT_EQ(pattern.reduced().count_wrong(data.data(), 0, kFew), 0u);
    for (size_t i = 0; i < kFew; ++i) {
      data[i * bytes] ^= std::byte{1};  // the lowest bit of the significand
      ASSERT_EQ(pattern.reduced().count_wrong(data.data(), 0, kFew), 1u) << name_of(type) << " element " << i;
      data[i * bytes] ^= std::byte{1};
    }
  }
}

TEST(Sequence, NotANumberIsWrong) {
  Pattern pattern(HDT_FLOAT32, HDT_AVG, 3, 1, kElements);
  std::vector<float> data(kElements);
  pattern.reduced().fill(data.data(), 0, kElements);
  data[5] = std::nanf("");
  data[7] += std::fabs(data[7]) * 1e-5f + 1e-5f;
  EXPECT_EQ(pattern.reduced().count_wrong(data.data(), 0, kElements), 2u);
}

TEST(Sequence, ContinuesBeyondItsPeriod) {
  constexpr size_t kLong = 2 * kPeriod + 100;
  Pattern pattern(HDT_INT64, std::nullopt, 2, 1, kLong);
  std::vector<int64_t> data(kLong);
  const Sequence& sequence = pattern.contribution(1);
  sequence.fill(data.data(), 0, kLong);
  EXPECT_EQ(data[10], data[10 + kPeriod]);
  EXPECT_EQ(sequence.count_wrong(data.data() + 50, 50, kLong - 50), 0u);
  data[kLong - 1] += 1;
  EXPECT_EQ(sequence.count_wrong(data.data(), 0, kLong), 1u);
  // A shift by a chunk is seen nearly everywhere.
  EXPECT_GT(sequence.count_wrong(data.data(), 65536, 1000), 990u);
}

TEST(Pattern, RanksDiffer) {
  Pattern pattern(HDT_FLOAT32, std::nullopt, 2, 1, kElements);
  std::vector<float> data(kElements);
  pattern.contribution(0).fill(data.data(), 0, kElements);
  EXPECT_GT(pattern.contribution(1).count_wrong(data.data(), 0, kElements), kElements - 5);
}

}  // namespace
}  // namespace hdt::bench
