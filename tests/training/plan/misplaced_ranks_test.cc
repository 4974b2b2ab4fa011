// misplaced_ranks_test.cc: ranks that were started elsewhere than their plan says.
#include "training/plan/output/misplaced_ranks.h"

#include <gtest/gtest.h>

namespace hdt::plan {
namespace {

// Two replicas of two stages: ranks 0 and 1 on the first node, 2 and 3 on the second one.
Plan plan_on(const std::string& first, const std::string& second) {
  Plan plan;
  plan.replicas = {{1, 4, {{3, first, 1}, {1, first, 1}}}, {1, 2, {{2, second, 1}, {2, second, 1}}}};
  return plan;
}

TEST(MisplacedRanks, NamesThatAreNoHostsSayOnlyWhoIsTogether) {
  const Plan plan = plan_on("nvidia", "amd");
  EXPECT_EQ(misplaced_ranks(plan, {{0, "x"}, {0, "x"}, {1, "y"}, {1, "y"}}), "");
  EXPECT_EQ(misplaced_ranks(plan, {{7, "y"}, {7, "y"}, {2, "x"}, {2, "x"}}), "");
  EXPECT_EQ(misplaced_ranks(plan, {{0, "x"}, {1, "y"}, {1, "y"}, {1, "y"}}),
            "ranks 0 and 1, whose stages are both on node 'nvidia', run on 'x' and 'y'");
  EXPECT_EQ(misplaced_ranks(plan, {{0, "x"}, {0, "x"}, {0, "x"}, {0, "x"}}),
            "ranks 0 and 2, whose stages are on nodes 'nvidia' and 'amd', run both on 'x'");
}

TEST(MisplacedRanks, RanksOfAKnownHostMustBeThere) {
  const Plan plan = plan_on("n1", "n2");
  EXPECT_EQ(misplaced_ranks(plan, {{0, "n1"}, {0, "n1"}, {1, "n2"}, {1, "n2"}}), "");
  EXPECT_EQ(misplaced_ranks(plan, {{0, "n2"}, {0, "n2"}, {1, "n1"}, {1, "n1"}}),
            "rank 0, whose stage is on node 'n1', runs on 'n2' (it is the first of 4 such ranks)");
  EXPECT_EQ(misplaced_ranks(plan, {{0, "n1"}, {0, "n1"}, {1, "n2"}, {0, "n1"}}),
            "rank 3, whose stage is on node 'n2', runs on 'n1'");
  EXPECT_EQ(misplaced_ranks(plan, {{0, "n1"}, {0, "n1"}, {1, "spare"}, {1, "spare"}}),
            "rank 2, whose stage is on node 'n2', runs on 'spare' (it is the first of 2 such ranks)");
}

// The cluster's file may have whole names where the host calls itself by the first part, and the other way.
TEST(MisplacedRanks, DomainsAreNotCompared) {
  const std::vector<RankPlace> places = {{0, "n1.example.org"}, {0, "n1.example.org"}, {1, "n2"}, {1, "n2"}};
  EXPECT_EQ(misplaced_ranks(plan_on("n1", "n2.example.org"), places), "");
  EXPECT_EQ(
      misplaced_ranks(plan_on("n2.example.org", "n1"), places),
      "rank 0, whose stage is on node 'n2.example.org', runs on 'n1.example.org' (it is the first of 4 such "
      "ranks)");
}

}  // namespace
}  // namespace hdt::plan
