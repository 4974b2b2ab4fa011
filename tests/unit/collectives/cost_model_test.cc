// cost_model_test.cc: times worked out by hand, and networks on which one thing only counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "collectives/owner_weights.h"
#include "tests/unit/collectives/cost_fixture.h"

namespace hdt::collectives::testing {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// By hand, for 4,000 bytes: a step takes 1 us, the wire 4 us and then 10 us, combining 2 us, copying 1 us.
const CostMeasurements kByHand{{10 * kMicro, 1e9}, 1 * kMicro, 2e9, 4e9, {}};
constexpr uint64_t kThousand = 1000;

double microseconds(Algorithm algorithm, const Operation& op, const CostMeasurements& measurements) {
  return predict(algorithm, op, measurements) / kMicro;
}

TEST(CostModel, OneNodeCopies) {
  EXPECT_NEAR(microseconds(Algorithm::kRing, operation(Collective::kAllReduce, 1, kThousand), kByHand), 2,
              1e-5);
}

TEST(CostModel, AMessageTakesBothEndsTheWireAndTheLatency) {
  const Operation broadcast = operation(Collective::kBroadcast, 2, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, kByHand), 1 + 4 + 10 + 1, 1e-5);
  const Operation barrier = operation(Collective::kBarrier, 2, 0);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, barrier, kByHand), 1 + 10 + 1, 1e-5);
}

TEST(CostModel, CombiningTakesTimeOfItsOwn) {
  const Operation reduce = operation(Collective::kReduce, 2, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kRing, reduce, kByHand), 1 + 4 + 10 + (1 + 2), 1e-5);
  // Both send at once: no longer than one way.
  const Operation allreduce = operation(Collective::kAllReduce, 2, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kRecursiveDoubling, allreduce, kByHand), 1 + 4 + 10 + (1 + 2), 1e-5);
}

TEST(CostModel, MessagesToOneNodeComeOneAfterTheOther) {
  // Nodes 1 and 2 send at once: 11 to 15 and 15 to 19 at the root's port; combined from 15 to 18 and 19 to
  // 22, into the root's input: copied until 24.
  const Operation reduce = operation(Collective::kReduce, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, reduce, kByHand), 24, 1e-5);
}

TEST(CostModel, MessagesOfOneNodeLeaveOneAfterTheOther) {
  // To node 2 from 1 to 5, to node 1 from 5 to 9; received 10 later.
  const Operation broadcast = operation(Collective::kBroadcast, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, kByHand), 9 + 10 + 1, 1e-5);
}

TEST(CostModel, ChunksFollowOneAnotherAsManyAsMayBeInFlight) {
  // The second leaves from 5 to 9.
  const Operation two_at_once = operation(Collective::kBroadcast, 2, kThousand, 2, 2);
  EXPECT_NEAR(microseconds(Algorithm::kRing, two_at_once, kByHand), 9 + 10 + 1, 1e-5);
  // The second is held until the receiver is done with the first.
  const Operation one_at_a_time = operation(Collective::kBroadcast, 2, kThousand, 2, 1);
  EXPECT_NEAR(microseconds(Algorithm::kRing, one_at_a_time, kByHand), 16 + 4 + 10 + 1, 1e-5);
}

// Node 0 is the root of the reduce, and combines 4,000 bytes in 4 us. Nobody waits for memory at node 1.
TEST(CostModel, EachNodeCombinesAndCopiesAtItsOwnRate) {
  const Operation reduce = operation(Collective::kReduce, 2, kThousand);
  CostMeasurements measurements = kByHand;
  measurements.memory = {{1e9, 4e9}, {2e9, 4e9}};
  EXPECT_NEAR(microseconds(Algorithm::kRing, reduce, measurements), 1 + 4 + 10 + (1 + 4), 1e-5);
  measurements.memory = {{2e9, 4e9}, {1e6, 1e6}};
  EXPECT_NEAR(microseconds(Algorithm::kRing, reduce, measurements), 1 + 4 + 10 + (1 + 2), 1e-5);
  const Operation alone = operation(Collective::kAllReduce, 1, kThousand);
  measurements.memory = {{2e9, 1e9}};
  EXPECT_NEAR(microseconds(Algorithm::kRing, alone, measurements), 1 + 4, 1e-5);
}

// Blocks of 1,000, 1,000 and 2,000 bytes go to their owners in no time, and are combined there with two
// contributions.
TEST(CostModel, AGatheredReductionTakesItsOwnersMemory) {
  Operation op = operation(Collective::kAllReduce, 3, kThousand);
  op.pairwise_offsets = {0, 250, 500, 1000};
  CostMeasurements measurements = kByHand;
  measurements.link = {0, kInfinite};
  measurements.step_overhead_s = 0;
  measurements.memory = {{1e9, 1e9}, {2e9, 1e9}, {1e9, 1e9}};
  EXPECT_NEAR(microseconds(Algorithm::kPairwise, op, measurements), 4, 1e-5);
  measurements.memory[0].reduce_bytes_s = 1e8;
  EXPECT_NEAR(microseconds(Algorithm::kPairwise, op, measurements), 20, 1e-5);
  op.pairwise_offsets = {0, 0, 500, 1000};
  EXPECT_NEAR(microseconds(Algorithm::kPairwise, op, measurements), 4, 1e-5);
}

TEST(CostModel, ASlowLinkDelaysItsOwnMessagesOnly) {
  CostMeasurements measurements = kByHand;
  measurements.link_of = [](int from, int to) {
    return LinkMeasurements{10 * kMicro, from == 0 && to == 2 ? 1e8 : 1e9};
  };
  // 40 us to node 2; the port is free for node 1 after 4.
  const Operation broadcast = operation(Collective::kBroadcast, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, measurements), 1 + 40 + 10 + 1, 1e-5);
  // By direction: nothing goes from 0 to 2 here.
  const Operation reduce = operation(Collective::kReduce, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, reduce, measurements), 24, 1e-5);
}

TEST(CostModel, ASlowNodeHasASlowPort) {
  CostMeasurements measurements = kByHand;
  measurements.link_of = [](int from, int to) {
    return LinkMeasurements{10 * kMicro, from == 0 || to == 0 ? 1e8 : 1e9};
  };
  // 11 to 51 and 51 to 91 at the root's port, then combined and copied.
  const Operation reduce = operation(Collective::kReduce, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, reduce, measurements), 91 + 3 + 2, 1e-5);
}

TEST(CostModel, AnEngineThatCarriesBothDirectionsDelaysWhatCrosses) {
  CostMeasurements measurements = kByHand;
  measurements.link.latency_s = 0;
  const Operation crossing = operation(Collective::kAllGather, 2, 2 * kThousand);
  const Operation one_way = operation(Collective::kBroadcast, 2, kThousand);
  const double apart = microseconds(Algorithm::kRing, crossing, measurements);
  const double alone = microseconds(Algorithm::kRing, one_way, measurements);
  // Half the rate while both are in use: 4 us for what is sent, then 4 us for what has come meanwhile.
  measurements.link.duplex_bytes_s = 0.5e9;
  EXPECT_NEAR(microseconds(Algorithm::kRing, crossing, measurements), apart + 4, 1e-5);
  EXPECT_NEAR(microseconds(Algorithm::kRing, one_way, measurements), alone, 1e-5);
  // Ports that do both at once are as before.
  measurements.link.duplex_bytes_s = 1e9;
  EXPECT_NEAR(microseconds(Algorithm::kRing, one_way, measurements), alone, 1e-5);
  const Operation many = operation(Collective::kAllGather, 2, 2 * kThousand, 64, 4);
  CostMeasurements bytes_only{{0, 1e9, 1e9}, 0, kInfinite, kInfinite, {}};
  EXPECT_NEAR(microseconds(Algorithm::kRing, many, bytes_only), 64 * 4, 8);
  bytes_only.link.duplex_bytes_s = 0.5e9;
  EXPECT_NEAR(microseconds(Algorithm::kRing, many, bytes_only), 64 * 8, 8);
}

// Links of which each carries as much both ways at once as one way. Many chunks, so that filling the pipeline
// does not count.
TEST(CostModel, AnEngineThatCarriesBothPortsIsNoLimit) {
  for (const auto& rates :
       {std::vector<double>{1e9, 1e9, 1e9, 1e9}, {1e9, 1e9, 2.5e8, 2.5e8}, {1e9, 1e9, 5e8}}) {
    const auto nodes = static_cast<int>(rates.size());
    Operation allreduce = operation(Collective::kAllReduce, nodes, 96 * kThousand, 512, 8);
    const auto time = [&](Algorithm algorithm, double duplex) {
      CostMeasurements measurements{{}, 0, kInfinite, kInfinite, {}};
      measurements.link_of = [&](int from, int to) {
        const double rate = std::min(rates[static_cast<size_t>(from)], rates[static_cast<size_t>(to)]);
        return LinkMeasurements{10 * kMicro, rate, rate * duplex};
      };
      return microseconds(algorithm, allreduce, measurements);
    };
    std::vector<OwnerRates> whole;
    for (const double rate : rates) whole.push_back({.link = static_cast<uint64_t>(rate)});
    const std::vector<uint32_t> weights = owner_weights(whole);
    allreduce.pairwise_offsets = weighted_offsets(weights, 96 * kThousand);
    const double slowest = *std::ranges::min_element(rates);
    const double bytes = 4.0 * 96 * kThousand * 512 / kMicro;
    const double ring = bytes * 2 * (nodes - 1) / nodes / slowest;
    const double owners = bytes * seconds_of_a_byte(weights, whole);
    for (const double duplex : {0.0, 1.0, 1.5}) {
      EXPECT_NEAR(time(Algorithm::kRing, duplex), ring, 0.02 * ring) << nodes << " nodes, " << duplex;
      EXPECT_NEAR(time(Algorithm::kPairwise, duplex), owners, 0.02 * owners) << nodes << " nodes, " << duplex;
    }
    // What is less than both ports is the limit of those that use both all the time.
    EXPECT_NEAR(time(Algorithm::kRing, 0.8), ring / 0.8, 0.02 * ring) << nodes << " nodes";
  }
}

TEST(CostModel, WhatIsNotCopiedIsTheSendersWhenItHearsOfTheArrival) {
  CostMeasurements measurements = kByHand;
  measurements.copied_bytes = 3999;
  const Operation broadcast = operation(Collective::kBroadcast, 2, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, measurements), 1 + 4 + 10 + 10, 1e-5);
  measurements.copied_bytes = 4000;
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, measurements), 1 + 4 + 10 + 1, 1e-5);
}

TEST(CostModel, AnOutputIsWrittenToOnceItIsKnownWhereItIs) {
  Operation broadcast = operation(Collective::kBroadcast, 2, kThousand);
  broadcast.tells_outputs = true;
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, kByHand), 10 + 4 + 10 + 1, 1e-5);
  // Combined elements land in memory that is known.
  Operation reduce = operation(Collective::kReduce, 2, kThousand);
  reduce.tells_outputs = true;
  EXPECT_NEAR(microseconds(Algorithm::kRing, reduce, kByHand), 1 + 4 + 10 + (1 + 2), 1e-5);
}

TEST(CostModel, OnlyLatencyCountsRounds) {
  const CostMeasurements measurements{{10 * kMicro, kInfinite}, 0, kInfinite, kInfinite, {}};
  for (const int nodes : {3, 7, 8, 12, 64}) {
    const Operation allreduce = operation(Collective::kAllReduce, nodes, 4 * kThousand);
    const int levels = std::bit_width(static_cast<unsigned>(nodes - 1));
    const auto rounds = [&](Algorithm a) { return microseconds(a, allreduce, measurements) / 10; };
    EXPECT_NEAR(rounds(Algorithm::kRing), 2 * (nodes - 1), 1e-5);
    // Where nodes are no power of two, some of its messages need not wait for the round before.
    EXPECT_LE(rounds(Algorithm::kBruck), 2 * levels + 1e-5);
    EXPECT_NEAR(rounds(Algorithm::kPairwise), 2, 1e-5);
    if (nodes == 8 || nodes == 64) {
      EXPECT_NEAR(rounds(Algorithm::kBruck), 2 * levels, 1e-5);
      EXPECT_NEAR(rounds(Algorithm::kHalvingDoubling), 2 * levels, 1e-5);
      EXPECT_NEAR(rounds(Algorithm::kRecursiveDoubling), levels, 1e-5);
    } else {
      EXPECT_NEAR(rounds(Algorithm::kHalvingDoubling), 2 * (levels - 1) + 2, 1e-5);
    }
  }
}

TEST(CostModel, OnlyBandwidthCountsBytes) {
  const CostMeasurements measurements{{0, 1e9}, 0, kInfinite, kInfinite, {}};
  for (const int nodes : {3, 7, 8, 12}) {
    const auto elements = static_cast<uint64_t>(nodes) * kThousand;
    const Operation allreduce = operation(Collective::kAllReduce, nodes, elements);
    const double fewest = 2 * 4.0 * (nodes - 1);  // of a chunk of 4 us per block
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kPairwise}) {
      EXPECT_NEAR(microseconds(algorithm, allreduce, measurements), fewest, 1e-3) << name_of(algorithm);
    }
    // As few, but a message of a later round that is early keeps one of this round waiting.
    EXPECT_GE(microseconds(Algorithm::kBruck, allreduce, measurements), fewest - 1e-3);
    EXPECT_LE(microseconds(Algorithm::kBruck, allreduce, measurements), 1.1 * fewest);
    EXPECT_GT(microseconds(Algorithm::kDoubleBinaryTree, allreduce, measurements), fewest + 1);
    const double folded = microseconds(Algorithm::kHalvingDoubling, allreduce, measurements);
    EXPECT_EQ(folded > fewest + 1, nodes != 8) << nodes << " nodes";
  }
  const Operation eight = operation(Collective::kAllReduce, 8, 8 * kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kRecursiveDoubling, eight, measurements), 3 * 32, 1e-5);
}

}  // namespace
}  // namespace hdt::collectives::testing
