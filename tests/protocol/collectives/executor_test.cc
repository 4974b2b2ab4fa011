// executor_test.cc: every collective by every algorithm on real memory, whatever the order in which writes
// land.
#include <gtest/gtest.h>

#include <array>

#include "tests/protocol/collectives/fake_cluster.h"
#include "tests/protocol/collectives/reference.h"

namespace hdt::collectives::testing {
namespace {

constexpr uint64_t kSeed = 20240611;
constexpr std::byte kUntouched{0xA5};

enum class Blocks { kEqual, kUneven, kSomeEmpty, kOneElement, kNothing };
constexpr std::array kBlocks = {Blocks::kEqual, Blocks::kUneven, Blocks::kSomeEmpty, Blocks::kOneElement,
                                Blocks::kNothing};

Problem make_problem(Collective what, int nodes, Blocks blocks) {
  Problem problem{what, nodes, 0, 0, {0}};
  for (int node = 0; node < nodes; ++node) {
    uint64_t length = 0;
    if (what == Collective::kBarrier || blocks == Blocks::kNothing) {
      length = 0;
    } else if (blocks == Blocks::kEqual) {
      length = 5;
    } else if (blocks == Blocks::kUneven) {
      length = node % 2 == 0 ? 9 : 3;
    } else if (blocks == Blocks::kSomeEmpty) {
      length = node % 3 == 1 ? 0 : 4 + node % 5;
    } else {
      length = node == nodes / 2 ? 1 : 0;
    }
    problem.block_offsets.push_back(problem.block_offsets.back() + length);
  }
  return problem;
}

class CollectiveRun {
 public:
  CollectiveRun(const Problem& problem, DataType type, ReduceOp op)
      : problem_(problem), type_(type), op_(op) {
    const size_t bytes = problem.elements() * type_size(type);
    memory_.resize(problem.nodes);
    for (int node = 0; node < problem.nodes; ++node) {
      memory_[node].input.assign(bytes, kUntouched);
      memory_[node].output.assign(bytes, kUntouched);
      for (uint64_t e = 0; e < problem.elements(); ++e) {
        if (reduces(problem.what))
          put_element(memory_[node].input, e, contribution(type_, op, node, e, kSeed));
        if (starts_with(node, e))
          put_element(memory_[node].output, e, contribution(type_, op, node, e, kSeed));
      }
    }
  }

  void check(Algorithm algorithm, Delivery delivery, uint64_t seed) {
    SCOPED_TRACE(::testing::Message()
                 << name_of(algorithm) << " " << name_of(problem_.what) << " " << name_of(type_) << " "
                 << name_of(op_) << " nodes " << problem_.nodes << " root " << problem_.root << " elements "
                 << problem_.elements() << " delivery " << static_cast<int>(delivery) << " seed " << seed);
    FakeCluster cluster(algorithm, problem_, type_, op_, memory_, delivery, seed);
    ASSERT_TRUE(cluster.run()) << "deadlock";
    std::vector<std::byte> expected(type_size(type_));
    for (int node = 0; node < problem_.nodes; ++node) {
      for (uint64_t e = 0; e < problem_.elements(); ++e) {
        if (!ends_with(node, e)) continue;
        put(type_, expected_value(e), expected.data());
        ASSERT_EQ(std::memcmp(expected.data(), &memory_[node].output[e * type_size(type_)], expected.size()),
                  0)
            << "node " << node << " element " << e;
      }
    }
  }

 private:
  void put_element(std::vector<std::byte>& area, uint64_t element, int64_t value) {
    put(type_, value, &area[element * type_size(type_)]);
  }
  bool starts_with(int node, uint64_t element) const {
    return (problem_.what == Collective::kBroadcast && node == problem_.root) ||
           (problem_.what == Collective::kAllGather && node == owner_of(problem_, element));
  }
  bool ends_with(int node, uint64_t element) const {
    if (problem_.what == Collective::kReduce) return node == problem_.root;
    if (problem_.what == Collective::kReduceScatter) return node == owner_of(problem_, element);
    return true;
  }
  int64_t expected_value(uint64_t element) const {
    if (problem_.what == Collective::kBroadcast)
      return contribution(type_, op_, problem_.root, element, kSeed);
    if (problem_.what == Collective::kAllGather) {
      return contribution(type_, op_, owner_of(problem_, element), element, kSeed);
    }
    return combined(type_, op_, problem_.nodes, element, kSeed);
  }

  Problem problem_;
  DataType type_;
  ReduceOp op_;
  std::vector<NodeMemory> memory_;
};

class EveryAlgorithm : public ::testing::TestWithParam<Algorithm> {
 protected:
  static void check_all(Collective what, int nodes, DataType type, ReduceOp op) {
    for (const Blocks blocks : kBlocks) {
      Problem problem = make_problem(what, nodes, blocks);
      const bool rooted = what == Collective::kBroadcast || what == Collective::kReduce;
      for (problem.root = 0; problem.root<(rooted ? nodes : 1); problem.root += nodes> 9 ? 7 : 1) {
        for (const Delivery delivery : {Delivery::kImmediate, Delivery::kLate, Delivery::kRandom}) {
          CollectiveRun(problem, type, op).check(GetParam(), delivery, kSeed + nodes);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
};

TEST_P(EveryAlgorithm, SolvesEveryCollectiveOnAnyNumberOfNodes) {
  for (const int nodes : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 64}) {
    for (int what = 0; what < kCollectiveCount; ++what) {
      check_all(static_cast<Collective>(what), nodes, DataType::kInt32, ReduceOp::kSum);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryAlgorithm, CombinesEveryTypeByEveryOp) {
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      if (!can_reduce(static_cast<DataType>(type), static_cast<ReduceOp>(op))) continue;
      for (const Collective what :
           {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
        check_all(what, 3, static_cast<DataType>(type), static_cast<ReduceOp>(op));
        check_all(what, 8, static_cast<DataType>(type), static_cast<ReduceOp>(op));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EveryAlgorithm, SurvivesManyRandomOrders) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto what = static_cast<Collective>(seed % kCollectiveCount);
    const int nodes = 2 + static_cast<int>(seed % 11);
    Problem problem = make_problem(what, nodes, seed % 2 == 0 ? Blocks::kUneven : Blocks::kSomeEmpty);
    problem.root = static_cast<int>(seed) % nodes;
    CollectiveRun(problem, DataType::kFloat32, ReduceOp::kSum).check(GetParam(), Delivery::kRandom, seed);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EveryAlgorithm,
                         ::testing::Values(Algorithm::kRing, Algorithm::kHalvingDoubling,
                                           Algorithm::kRecursiveDoubling, Algorithm::kDoubleBinaryTree,
                                           Algorithm::kBruck, Algorithm::kPairwise, Algorithm::kTwoLevel),
                         [](const auto& param) { return std::string(name_of(param.param)); });

}  // namespace
}  // namespace hdt::collectives::testing
