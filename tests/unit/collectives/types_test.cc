// types_test.cc: names, both ways.
#include <gtest/gtest.h>

#include "collectives/types.h"

namespace hdt::collectives {
namespace {

TEST(Types, EveryNameIsParsedBack) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    EXPECT_EQ(parse_data_type(name_of(static_cast<DataType>(i))), static_cast<DataType>(i));
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    EXPECT_EQ(parse_reduce_op(name_of(static_cast<ReduceOp>(i))), static_cast<ReduceOp>(i));
  }
  for (int i = 0; i < kCollectiveCount; ++i) {
    EXPECT_EQ(parse_collective(name_of(static_cast<Collective>(i))), static_cast<Collective>(i));
  }
}

TEST(Types, TakesTheNamesOfNcclTests) {
  EXPECT_EQ(parse_data_type("half"), DataType::kFloat16);
  EXPECT_EQ(parse_data_type("float"), DataType::kFloat32);
  EXPECT_EQ(parse_data_type("double"), DataType::kFloat64);
}

TEST(Types, RefusesOtherNames) {
  EXPECT_EQ(parse_data_type("float8"), std::nullopt);
  EXPECT_EQ(parse_data_type(""), std::nullopt);
  EXPECT_EQ(parse_reduce_op("SUM"), std::nullopt);
  EXPECT_EQ(parse_collective("all_reduce"), std::nullopt);
}

}  // namespace
}  // namespace hdt::collectives
