// measurements_test.cc: what a node has measured, on its way to the others.
#include "ipc/measurements.h"

#include <gtest/gtest.h>

namespace hdt::ipc {
namespace {

TEST(Measurements, SurviveTheWayAndHaveALimit) {
  const LinkRates slow{20'000, 1'000'000'000, 800'000'000};
  const NodeRates rates{{9'000'000'000, 8'000'000'000}, {slow, {5'000, 10'000'000'000, 9'000'000'000}, {}}};
  Writer writer;
  fields(writer, rates);
  Reader reader(writer.written());
  NodeRates read;
  fields(reader, read);
  EXPECT_EQ(read, rates);
  EXPECT_TRUE(reader.complete());
  Writer large;
  const NodeRates too_many{{1, 1}, std::vector<LinkRates>(kMostMeasuredNodes + 1)};
  fields(large, too_many);
  Reader refused(large.written());
  fields(refused, read);
  EXPECT_FALSE(refused.complete());
}

}  // namespace
}  // namespace hdt::ipc
