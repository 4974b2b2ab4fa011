// network_test.cc: transfers share ports equally, and only where they meet.
#include "training/plan/predict/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace hdt::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// Four nodes; 100 B/s between nodes, 1000 B/s inside.
class Networks : public ::testing::Test {
 protected:
  Networks() {
    for (const char* name : {"a", "b", "c", "d"}) cluster_.nodes.push_back({name, "k", 8, 1});
    profile_.links[{"k", "k", false}] = {latency_, {{1, 100}}};
    profile_.links[{"k", "k", true}] = {0, {{1, 1000}}};
  }

  static constexpr double latency_ = 0.25;
  Cluster cluster_;
  Profile profile_;
};

TEST_F(Networks, OneTransferTakesLatencyAndBytes) {
  Network network(cluster_, profile_);
  EXPECT_EQ(network.next_end(), std::numeric_limits<double>::infinity());
  const int id = network.start(TransferKind::kMessage, {{0, 1}}, 200, 200, 1);
  EXPECT_DOUBLE_EQ(network.next_end(), latency_ + 2);
  EXPECT_THAT(network.advance(1), ElementsAre());
  EXPECT_THAT(network.advance(network.next_end()), ElementsAre(id));
}

TEST_F(Networks, APortIsSharedInOneDirection) {
  Network network(cluster_, profile_);
  const int first = network.start(TransferKind::kMessage, {{0, 1}}, 100, 100, 1);
  const int second = network.start(TransferKind::kMessage, {{0, 2}}, 200, 200, 1);  // same port out
  const int back =
      network.start(TransferKind::kMessage, {{1, 0}}, 100, 100, 1);  // the other direction is free
  const int inside = network.start(TransferKind::kMessage, {{0, 0}}, 1000, 1000, 1);  // and so is the inside
  EXPECT_THAT(network.advance(1), ElementsAre(inside));
  EXPECT_THAT(network.advance(latency_), ElementsAre(back));
  EXPECT_DOUBLE_EQ(network.next_end(), 1);
  EXPECT_THAT(network.advance(1), ElementsAre(first));
  // Alone again: of 200 bytes half are left.
  EXPECT_DOUBLE_EQ(network.next_end(), 1);
  EXPECT_THAT(network.advance(1), ElementsAre(second));
}

TEST_F(Networks, ARingMovesAtItsSlowestHop) {
  Network network(cluster_, profile_);
  const int ring = network.start(TransferKind::kMessage, {{0, 1}, {1, 0}}, 100, 100, 1);
  const int into = network.start(TransferKind::kMessage, {{2, 1}}, 100, 100, 1);
  EXPECT_THAT(network.advance(latency_ + 2), UnorderedElementsAre(ring, into));
}

TEST_F(Networks, EfficiencyIsAPartOfTheRate) {
  Network network(cluster_, profile_);
  network.start(TransferKind::kMessage, {{0, 1}}, 100, 100, 0.5);
  EXPECT_DOUBLE_EQ(network.next_end(), latency_ + 2);
}

}  // namespace
}  // namespace hdt::plan
