// plan_test.cc: counts, sizes and bandwidth factors of nccl-tests.
#include "bench/commbench/plan.h"

#include <gtest/gtest.h>

namespace hdt::bench {
namespace {

TEST(Shape, OfAnAllReduceIsTheWholeBuffer) {
  const Shape shape = shape_of({Collective::kAllReduce, 1000, HDT_FLOAT64, HDT_SUM, 0}, 3);
  EXPECT_EQ(shape.count, 125u);
  EXPECT_EQ(shape.bytes, 1000u);
  EXPECT_EQ(shape.send_elements, 125u);
  EXPECT_EQ(shape.recv_elements, 125u);
}

TEST(Shape, OfPartedCollectivesIsCutToAWholeCount) {
  const Shape scatter = shape_of({Collective::kReduceScatter, 1000, HDT_FLOAT32, HDT_SUM, 0}, 3);
  EXPECT_EQ(scatter.count, 83u);
  EXPECT_EQ(scatter.bytes, 996u);
  EXPECT_EQ(scatter.send_elements, 249u);
  EXPECT_EQ(scatter.recv_elements, 83u);
  const Shape gather = shape_of({Collective::kAllGather, 1000, HDT_FLOAT32, HDT_SUM, 0}, 3);
  EXPECT_EQ(gather.count, 83u);
  EXPECT_EQ(gather.send_elements, 83u);
  EXPECT_EQ(gather.recv_elements, 249u);
  const Shape all = shape_of({Collective::kAllToAll, 1000, HDT_FLOAT32, HDT_SUM, 0}, 3);
  EXPECT_EQ(all.count, 83u);
  EXPECT_EQ(all.bytes, 996u);
  EXPECT_EQ(all.send_elements, 249u);
  EXPECT_EQ(all.recv_elements, 249u);
}

TEST(Shape, SmallerThanAnElementEachIsNothing) {
  EXPECT_EQ(shape_of({Collective::kAllGather, 8, HDT_FLOAT32, HDT_SUM, 0}, 4).bytes, 0u);
}

TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 1), 0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kSendRecv, 4), 1);
}

}  // namespace
}  // namespace hdt::bench
