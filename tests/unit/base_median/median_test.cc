// median_test.cc: the middle of values in any order.
#include "base/median.h"

#include <gtest/gtest.h>

namespace hdt {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(median({7}), 7);
  EXPECT_DOUBLE_EQ(median({5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 100}), 3.5);
}

}  // namespace
}  // namespace hdt
