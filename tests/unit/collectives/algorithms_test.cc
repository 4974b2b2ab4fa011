// algorithms_test.cc: what each algorithm's file says of its steps, bytes, scratch and order; that it solves
// its problem is proven in schedule_test.cc.
#include "collectives/algorithms.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "collectives/hazards.h"
#include "tests/unit/collectives/expressions.h"
#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

constexpr std::array kWithBlocks = {Collective::kAllReduce, Collective::kReduceScatter,
                                    Collective::kAllGather};

std::set<int> peers(const StepList& list, bool receiving) {
  std::set<int> found;
  for (const Step& step : list.steps) {
    if (receiving ? is_receive(step) : step.kind == StepKind::kSend) found.insert(step.peer);
  }
  return found;
}

class EveryAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, UsesTheScratchThatItSays) {
  for (int nodes = 1; nodes <= 33; ++nodes) {
    for (int what = 0; what < kCollectiveCount; ++what) {
      for (const Shape shape : kShapes) {
        const Problem problem = make_problem(static_cast<Collective>(what), nodes, shape);
        ASSERT_EQ(scratch_of(all_steps(GetParam(), problem)), scratch_needed(GetParam(), problem))
            << name_of(problem.what) << ", " << nodes << " nodes, shape " << static_cast<int>(shape);
      }
    }
  }
}

TEST_P(EveryAlgorithm, IsHalvingDoublingWhereItHasNoOwnFormAndOnlyThere) {
  for (const int nodes : {3, 4, 7, 8}) {
    for (int what = 0; what < kCollectiveCount; ++what) {
      const Problem problem = make_problem(static_cast<Collective>(what), nodes, Shape::kEqual);
      const auto lists = all_steps(GetParam(), problem);
      const auto others = all_steps(Algorithm::kHalvingDoubling, problem);
      bool same = true;
      for (int node = 0; node < nodes; ++node) same &= lists[node].steps == others[node].steps;
      const bool expected = GetParam() == Algorithm::kHalvingDoubling || !has_own_form(GetParam(), problem);
      EXPECT_EQ(same, expected) << name_of(problem.what) << ", " << nodes << " nodes";
    }
  }
}

// The same bits on every node.
TEST_P(EveryAlgorithm, GivesAllNodesTheSumsInOneOrder) {
  for (int nodes = 2; nodes <= 17; ++nodes) {
    const Problem problem = make_problem(Collective::kAllReduce, nodes, Shape::kThreeToOne);
    const auto found = results(all_steps(GetParam(), problem), problem);
    for (const auto& of_node : found) ASSERT_EQ(of_node, found[0]) << nodes << " nodes";
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithm,
                         ::testing::Values(Algorithm::kRing, Algorithm::kHalvingDoubling,
                                           Algorithm::kRecursiveDoubling, Algorithm::kDoubleBinaryTree,
                                           Algorithm::kBruck, Algorithm::kPairwise, Algorithm::kTwoLevel),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST(DoubleBinaryTree, IsProvenWithManyChunks) {
  for (int nodes = 3; nodes <= 40; ++nodes) {
    for (const Collective what : {Collective::kAllReduce, Collective::kReduce, Collective::kBroadcast}) {
      for (const Shape shape : kShapes) {
        const Problem problem = make_problem(what, nodes, shape, nodes / 3);
        ASSERT_EQ(
            check(chunked_tree(problem), problem, scratch_needed(Algorithm::kDoubleBinaryTree, problem)), "")
            << name_of(what) << ", " << nodes << " nodes, shape " << static_cast<int>(shape);
      }
    }
  }
}

TEST(DoubleBinaryTree, CutsLongChunksIntoChunks) {
  Problem problem = make_problem(Collective::kBroadcast, 3, Shape::kNothing);
  for (const uint64_t elements : {1000u, 20000u, 1000000u}) {
    problem.block_offsets.back() = elements;
    const auto root = all_steps(Algorithm::kDoubleBinaryTree, problem)[0].steps;
    EXPECT_EQ(root.size(), elements == 1000 ? 2u : elements == 20000 ? 4u : 8u);
  }
}

TEST(DoubleBinaryTree, LetsNobodySendMoreThanTwiceTheChunkAndIsLogarithmicallyDeep) {
  for (int nodes = 3; nodes <= 64; ++nodes) {
    const Problem problem = make_problem(Collective::kAllReduce, nodes, Shape::kEqual);
    const auto lists = all_steps(Algorithm::kDoubleBinaryTree, problem);
    const auto sums = results(lists, problem);
    for (int node = 0; node < nodes; ++node) {
      EXPECT_LE(sent_elements(lists[node]), 2 * problem.elements()) << nodes << " nodes, node " << node;
      EXPECT_LE(peers(lists[node], true).size(), 4u);
      // A sum's depth is at most two contributions per level.
      const std::string first = sums[node].front();
      size_t depth = 0;
      size_t open = 0;
      for (const char c : first) {
        open = c == '(' ? open + 1 : c == ')' ? open - 1 : open;
        depth = std::max(depth, open);
      }
      EXPECT_LE(depth, 2u * std::bit_width(static_cast<unsigned>(nodes))) << nodes << " nodes";
    }
  }
}

TEST(Bruck, TalksToTwoPeersPerRoundAndSendsNoMoreThanTheRing) {
  for (int nodes = 3; nodes <= 64; ++nodes) {
    const auto rounds = static_cast<size_t>(std::bit_width(static_cast<unsigned>(nodes - 1)));
    for (const Collective what : kWithBlocks) {
      const uint64_t passes = what == Collective::kAllReduce ? 2 : 1;
      for (const StepList& list : all_steps(Algorithm::kBruck, make_problem(what, nodes, Shape::kEqual))) {
        EXPECT_LE(peers(list, true).size(), passes * rounds);
        EXPECT_EQ(sent_elements(list), passes * 2 * (nodes - 1));
        const auto receives = std::count_if(list.steps.begin(), list.steps.end(), is_receive);
        EXPECT_LE(receives, static_cast<ptrdiff_t>(passes * 3 * rounds)) << nodes << " nodes";
      }
    }
  }
}

TEST(Pairwise, ExchangesOneBlockWithEveryPeer) {
  for (const int nodes : {3, 5, 8, 64}) {
    for (const Collective what : kWithBlocks) {
      const uint64_t passes = what == Collective::kAllReduce ? 2 : 1;
      for (const StepList& list : all_steps(Algorithm::kPairwise, make_problem(what, nodes, Shape::kEqual))) {
        EXPECT_EQ(peers(list, true).size(), nodes - 1u);
        EXPECT_EQ(peers(list, false).size(), nodes - 1u);
        EXPECT_EQ(sent_elements(list), passes * 2 * (nodes - 1));
      }
    }
  }
}

// However the chunk is cut into blocks, and whoever owns them.
TEST(Pairwise, CombinesInTheOrderOfTheNodes) {
  for (int nodes = 2; nodes <= 17; ++nodes) {
    std::string in_order = "0";
    for (int node = 1; node < nodes; ++node) in_order = "(" + in_order + " " + std::to_string(node) + ")";
    for (const Shape shape : kShapes) {
      for (const Collective what : {Collective::kAllReduce, Collective::kReduceScatter}) {
        const Problem problem = make_problem(what, nodes, shape);
        const auto found = results(all_steps(Algorithm::kPairwise, problem), problem);
        for (int node = 0; node < nodes; ++node) {
          const bool all = what == Collective::kAllReduce;
          const uint64_t begin = all ? 0 : problem.block_offsets[node];
          const uint64_t end = all ? problem.elements() : problem.block_offsets[node + 1];
          for (uint64_t e = begin; e < end; ++e) ASSERT_EQ(found[node][e], in_order) << "node " << node;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
