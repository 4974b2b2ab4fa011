// link_verdict_test.cc: rails that are down or slow, while every rank is in the call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/diagnosis/verdict.h"
#include "tests/unit/daemon_diagnosis/facts_builder.h"

namespace hdt::daemon::testing {
namespace {

using ::testing::HasSubstr;

FactsBuilder in_a_barrier() {
  FactsBuilder world({0, 1});
  for (const uint32_t rank : {0U, 1U}) world.enter(rank, call("barrier", 0, 3));
  world.rail(1, "n0", "eth0", "up");
  return world;
}

TEST(LinkVerdict, NoRailWorks) {
  FactsBuilder world = in_a_barrier();
  world.rail(0, "n1", "eth0", "down");
  world.rail(0, "n1", "eth1", "down");
  const Verdict verdict = judge(world.facts())[0];
  EXPECT_EQ(verdict.cause, Cause::kLinkDown);
  EXPECT_EQ(verdict.node, "n0");
  EXPECT_THAT(verdict.sentence, HasSubstr("no rail from node n0 to node n1 works: NIC went down"));
}

TEST(LinkVerdict, OneOfTwoRailsIsDown) {
  FactsBuilder world = in_a_barrier();
  world.rail(0, "n1", "eth0", "up");
  world.rail(0, "n1", "eth1", "down");
  const Verdict verdict = judge(world.facts())[0];
  EXPECT_EQ(verdict.cause, Cause::kRailDown);
  EXPECT_THAT(verdict.sentence, HasSubstr("the rail on eth1"));
}

TEST(LinkVerdict, ARailIsSlowerThanTheOthers) {
  FactsBuilder world = in_a_barrier();
  world.rail(0, "n1", "eth0", "up", 110'000'000);
  world.rail(0, "n1", "eth1", "up", 2'000'000);
  const Verdict verdict = judge(world.facts())[0];
  EXPECT_EQ(verdict.cause, Cause::kSlowRail);
  EXPECT_THAT(verdict.sentence, HasSubstr("the rail on eth1"));
  EXPECT_THAT(verdict.sentence, HasSubstr("carries 2.0 MB/s, another one 110.0 MB/s"));
}

TEST(LinkVerdict, ASlowNicMayBeSlow) {
  FactsBuilder world = in_a_barrier();
  world.rail(0, "n1", "eth0", "up", 1'100'000'000, 10'000);
  world.rail(0, "n1", "eth1", "up", 11'000'000, 100);
  EXPECT_NE(judge(world.facts())[0].cause, Cause::kSlowRail);
}

TEST(LinkVerdict, RailsToNodesOfOtherGroupsDoNotMatter) {
  FactsBuilder world = in_a_barrier();
  world.rail(0, "n1", "eth0", "up");
  world.rail(0, "n7", "eth0", "down");
  EXPECT_EQ(judge(world.facts())[0].cause, Cause::kStuck);
}

}  // namespace
}  // namespace hdt::daemon::testing
