// statistics_test.cc: percentiles and bandwidths.
#include "bench/commbench/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hdt::bench {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1);  // 100, 99, ... 1
  EXPECT_EQ(percentile(values, 50), 50);
  EXPECT_EQ(percentile(values, 99), 99);
  EXPECT_EQ(percentile(values, 100), 100);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile({7}, 99), 7);
  EXPECT_EQ(percentile({1, 2, 3}, 50), 2);
  EXPECT_EQ(percentile({1, 2, 3}, 99), 3);
}

TEST(Summarise, ComputesBandwidthFromTheMean) {
  const Timing timing = summarise({50, 150}, 1000000, 1.5);
  EXPECT_DOUBLE_EQ(timing.mean_us, 100);
  EXPECT_DOUBLE_EQ(timing.p50_us, 50);
  EXPECT_DOUBLE_EQ(timing.p99_us, 150);
  EXPECT_DOUBLE_EQ(timing.algorithm_gbps, 10);  // 1 MB in 100 us
  EXPECT_DOUBLE_EQ(timing.bus_gbps, 15);
}

TEST(Summarise, OfNoBytesIsNoBandwidth) { EXPECT_EQ(summarise({5}, 0, 1).bus_gbps, 0); }

}  // namespace
}  // namespace hdt::bench
