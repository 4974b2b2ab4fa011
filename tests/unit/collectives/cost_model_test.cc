// cost_model_test.cc: times worked out by hand, and what must hold of any time.
#include "collectives/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>

#include "collectives/cost_program.h"
#include "collectives/cost_simulation.h"

namespace hdt::collectives::testing {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr uint64_t kSeed = 20241121;

// By hand, for 4,000 bytes: a step takes 1 us, the wire 4 us and then 10 us, combining 2 us, copying 1 us.
const CostFigures kByHand{{10 * kMicro, 1e9}, 1 * kMicro, 2e9, 4e9, {}};
constexpr uint64_t kThousand = 1000;

Operation operation(Collective what, int nodes, uint64_t elements, uint64_t pieces = 1, int in_flight = 1) {
  Operation result{{what, nodes, 0, 0, {}}, DataType::kFloat32, pieces, in_flight};
  for (int node = 0; node <= nodes; ++node) {
    result.piece.block_offsets.push_back(elements * static_cast<uint64_t>(node) /
                                         static_cast<uint64_t>(nodes));
  }
  return result;
}

double microseconds(Algorithm algorithm, const Operation& op, const CostFigures& figures) {
  return predict(algorithm, op, figures) / kMicro;
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
  // Nodes 1 and 2 send at once: 11 to 15 and 15 to 19 at the root's port; combined from 15 to 18 and 19 to 22, into the
  // root's input: copied until 24.
  const Operation reduce = operation(Collective::kReduce, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, reduce, kByHand), 24, 1e-5);
}

TEST(CostModel, MessagesOfOneNodeLeaveOneAfterTheOther) {
  // To node 2 from 1 to 5, to node 1 from 5 to 9; received 10 later.
  const Operation broadcast = operation(Collective::kBroadcast, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, kByHand), 9 + 10 + 1, 1e-5);
}

TEST(CostModel, PiecesFollowOneAnotherAsManyAsMayBeInFlight) {
  // The second leaves from 5 to 9.
  const Operation two_at_once = operation(Collective::kBroadcast, 2, kThousand, 2, 2);
  EXPECT_NEAR(microseconds(Algorithm::kRing, two_at_once, kByHand), 9 + 10 + 1, 1e-5);
  // The second is held until the receiver is done with the first.
  const Operation one_at_a_time = operation(Collective::kBroadcast, 2, kThousand, 2, 1);
  EXPECT_NEAR(microseconds(Algorithm::kRing, one_at_a_time, kByHand), 16 + 4 + 10 + 1, 1e-5);
}

TEST(CostModel, ASlowLinkDelaysItsOwnMessagesOnly) {
  CostFigures figures = kByHand;
  figures.link_of = [](int from, int to) {
    return LinkFigures{10 * kMicro, from == 0 && to == 2 ? 1e8 : 1e9};
  };
  // 40 us to node 2; the port is free for node 1 after 4.
  const Operation broadcast = operation(Collective::kBroadcast, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, broadcast, figures), 1 + 40 + 10 + 1, 1e-5);
  // By direction: nothing goes from 0 to 2 here.
  const Operation reduce = operation(Collective::kReduce, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, reduce, figures), 24, 1e-5);
}

TEST(CostModel, ASlowNodeHasASlowPort) {
  CostFigures figures = kByHand;
  figures.link_of = [](int from, int to) {
    return LinkFigures{10 * kMicro, from == 0 || to == 0 ? 1e8 : 1e9};
  };
  // 11 to 51 and 51 to 91 at the root's port, then combined and copied.
  const Operation reduce = operation(Collective::kReduce, 3, kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kHalvingDoubling, reduce, figures), 91 + 3 + 2, 1e-5);
}

TEST(CostModel, OnlyLatencyCountsRounds) {
  const CostFigures figures{{10 * kMicro, kInfinite}, 0, kInfinite, kInfinite, {}};
  for (const int nodes : {3, 7, 8, 12, 64}) {
    const Operation allreduce = operation(Collective::kAllReduce, nodes, 4 * kThousand);
    const int levels = std::bit_width(static_cast<unsigned>(nodes - 1));
    const auto rounds = [&](Algorithm a) { return microseconds(a, allreduce, figures) / 10; };
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
  const CostFigures figures{{0, 1e9}, 0, kInfinite, kInfinite, {}};
  for (const int nodes : {3, 7, 8, 12}) {
    const auto elements = static_cast<uint64_t>(nodes) * kThousand;
    const Operation allreduce = operation(Collective::kAllReduce, nodes, elements);
    const double fewest = 2 * 4.0 * (nodes - 1);  // of a piece of 4 us per block
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kPairwise}) {
      EXPECT_NEAR(microseconds(algorithm, allreduce, figures), fewest, 1e-3) << name_of(algorithm);
    }
    // As few, but a message of a later round that is early keeps one of this round waiting.
    EXPECT_GE(microseconds(Algorithm::kBruck, allreduce, figures), fewest - 1e-3);
    EXPECT_LE(microseconds(Algorithm::kBruck, allreduce, figures), 1.1 * fewest);
    EXPECT_GT(microseconds(Algorithm::kDoubleBinaryTree, allreduce, figures), fewest + 1);
    const double folded = microseconds(Algorithm::kHalvingDoubling, allreduce, figures);
    EXPECT_EQ(folded > fewest + 1, nodes != 8) << nodes << " nodes";
  }
  const Operation eight = operation(Collective::kAllReduce, 8, 8 * kThousand);
  EXPECT_NEAR(microseconds(Algorithm::kRecursiveDoubling, eight, figures), 3 * 32, 1e-5);
}

CostFigures random_figures(std::mt19937_64& random) {
  const auto between = [&](double least, double most) {
    return least * std::pow(most / least, std::uniform_real_distribution<>(0, 1)(random));
  };
  return {{between(1e-6, 1e-4), between(1e8, 1e11)},
          between(1e-7, 1e-5),
          between(1e9, 1e11),
          between(1e9, 1e11),
          {}};
}

Operation random_operation(std::mt19937_64& random) {
  const auto what = static_cast<Collective>(random() % kCollectiveCount);
  const int nodes = 2 + static_cast<int>(random() % 12);
  Operation op = operation(what, nodes, what == Collective::kBarrier ? 0 : 1 + random() % 100000,
                           1 + random() % 40, 1 + static_cast<int>(random() % 4));
  op.piece.root = static_cast<int>(random() % nodes);
  return op;
}

// No port can carry more than its bandwidth, and no result is known before a message has come from everybody.
TEST(CostModel, NothingIsFasterThanTheNetwork) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    const Operation op = random_operation(random);
    const CostFigures figures = random_figures(random);
    const auto algorithm = static_cast<Algorithm>(random() % kAlgorithmCount);
    const double blocks = op.piece.what == Collective::kAllReduce ? 2 : 1;
    const auto bytes = static_cast<double>(op.piece.elements() / op.piece.nodes * (op.piece.nodes - 1) * 4);
    const double least = std::max(figures.link.latency_s, blocks * bytes * static_cast<double>(op.pieces) /
                                                              figures.link.bandwidth_bytes_s);
    const bool all_receive = op.piece.what != Collective::kReduce && op.piece.what != Collective::kBroadcast;
    EXPECT_GE(predict(algorithm, op, figures), all_receive ? 0.999 * least : figures.link.latency_s)
        << name_of(algorithm) << " " << name_of(op.piece.what) << ", round " << round;
  }
}

// Exactly so: no rounding but that to picoseconds.
TEST(CostModel, EverythingTwiceAsSlowTakesTwiceAsLong) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    const Operation op = random_operation(random);
    const CostFigures figures = random_figures(random);
    const CostFigures slow{{2 * figures.link.latency_s, figures.link.bandwidth_bytes_s / 2},
                           2 * figures.step_overhead_s,
                           figures.reduce_bytes_s / 2,
                           figures.copy_bytes_s / 2,
                           {}};
    const auto algorithm = static_cast<Algorithm>(random() % kAlgorithmCount);
    const double once = predict(algorithm, op, figures);
    EXPECT_NEAR(predict(algorithm, op, slow), 2 * once, 1e-4 * once) << "round " << round;
  }
}

// A step that comes later may let another one go first, so a slower part can make the whole a little faster (Graham
// 1969); but a little only.
TEST(CostModel, MoreWorkAndSlowerPartsTakeLonger) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    Operation op = random_operation(random);
    CostFigures figures = random_figures(random);
    const auto algorithm = static_cast<Algorithm>(random() % kAlgorithmCount);
    const double before = predict(algorithm, op, figures);
    const uint64_t change = random() % 6;
    if (change == 0) figures.link.latency_s *= 2;
    if (change == 1) figures.link.bandwidth_bytes_s /= 2;
    if (change == 2) figures.step_overhead_s *= 2;
    if (change == 3) figures.reduce_bytes_s /= 2;
    if (change == 4) op.pieces += 1;
    if (change == 5) {
      for (uint64_t& offset : op.piece.block_offsets) offset *= 2;
    }
    EXPECT_GE(predict(algorithm, op, figures), 0.98 * before)
        << name_of(algorithm) << " " << name_of(op.piece.what) << ", round " << round << ", change "
        << change;
  }
}

TEST(CostModel, LongOperationsTakeAboutWhatTheirPiecesTakeSimulated) {
  const CostFigures figures{{10 * kMicro, 1.25e9}, 2 * kMicro, 8e9, 1e10, {}};
  for (int i = 0; i < kAlgorithmCount; ++i) {
    for (const int nodes : {2, 3, 8, 12, 40}) {
      for (const uint64_t elements : {4096, 65536}) {
        const Operation op = operation(Collective::kAllReduce, nodes, elements, 60, 4);
        const auto program =
            make_cost_program(steps_of_all(static_cast<Algorithm>(i), op.piece), op.type, figures);
        const auto ends = simulate(program, 60, 4);
        const double simulated = static_cast<double>(*std::max_element(ends.begin(), ends.end())) * 1e-12;
        EXPECT_NEAR(predict(static_cast<Algorithm>(i), op, figures), simulated, 0.15 * simulated)
            << name_of(static_cast<Algorithm>(i)) << ", " << nodes << " nodes, " << elements << " elements";
      }
    }
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
