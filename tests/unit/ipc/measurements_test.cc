// measurements_test.cc: what a node has measured, on its way to the others.
#include "ipc/measurements.h"

#include <gtest/gtest.h>

namespace hdt::ipc {
namespace {

TEST(Measurements, SurviveTheWayAndHaveALimit) {
  const LinkRates slow{20'000, 1'000'000'000, 800'000'000};
  const NodeRates rates{{9'000'000'000, 8'000'000'000}, {slow, {5'000, 10'000'000'000, 9'000'000'000}, {}}};
  Writer writer;
  put(writer, rates);
  Reader reader(writer.bytes());
  EXPECT_EQ(get_node_rates(reader), rates);
  EXPECT_TRUE(reader.complete());
  Writer large;
  put(large, NodeRates{{1, 1}, std::vector<LinkRates>(kMostMeasuredNodes + 1)});
  Reader refused(large.bytes());
  (void)get_node_rates(refused);
  EXPECT_FALSE(refused.complete());
}

}  // namespace
}  // namespace hdt::ipc
