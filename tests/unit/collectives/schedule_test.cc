// schedule_test.cc: every algorithm is proven by the checker, for every collective, 1 to 64 nodes (and some
// more), and blocks of every shape; and costs what its file says.
#include <gtest/gtest.h>

#include <bit>

#include "collectives/algorithms.h"
#include "collectives/hazards.h"
#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

// Sanitizers slow the checker down tenfold: they see a sample, the plain build sees all.
std::vector<int> node_counts() {
  std::vector<int> counts;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  for (int n = 1; n <= 17; ++n) counts.push_back(n);
  counts.insert(counts.end(), {31, 32, 33, 64});
#else
  for (int n = 1; n <= 64; ++n) counts.push_back(n);
  counts.insert(counts.end(), {65, 100, 128});
#endif
  return counts;
}

class Schedules : public ::testing::TestWithParam<std::tuple<Algorithm, Collective>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  Collective what() const { return std::get<1>(GetParam()); }
};

TEST_P(Schedules, AreProvenForAnyNodesAndBlocks) {
  for (const int nodes : node_counts()) {
    for (const Shape shape : kShapes) {
      for (const int root : roots_of(what(), nodes)) {
        const Problem problem = make_problem(what(), nodes, shape, root);
        ASSERT_EQ(check(algorithm(), problem, scratch_needed(algorithm(), problem)), "")
            << nodes << " nodes, root " << root << ", shape " << static_cast<int>(shape);
      }
    }
  }
}

TEST_P(Schedules, MoveNothingOfNothing) {
  for (const int nodes : {1, 2, 3, 8}) {
    for (const StepList& list : all_steps(algorithm(), make_problem(what(), nodes, Shape::kNothing))) {
      EXPECT_EQ(list.steps.empty(), what() != Collective::kBarrier || nodes == 1);
      EXPECT_EQ(list.scratch_length, 0u);
    }
  }
}

// So its output may be the user's recvbuf, which has room for one block (ipc/partition.h).
TEST(ReduceScatter, BetweenTwoNodesHasTheOwnBlockOnlyInTheOutput) {
  const Problem problem = make_problem(Collective::kReduceScatter, 2, Shape::kEqual);
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto lists = all_steps(static_cast<Algorithm>(i), problem);
    for (size_t node = 0; node < 2; ++node) {
      const uint64_t first = problem.block_offsets[node];
      const uint64_t end = problem.block_offsets[node + 1];
      const auto is_own = [&](const Access& access) {
        return access.length == 0 || access.area != Area::kOutput ||
               (access.offset >= first && access.offset + access.length <= end);
      };
      EXPECT_FALSE(lists[node].steps.empty());
      for (const Step& step : lists[node].steps) {
        EXPECT_TRUE(is_own(read_by(step)) && is_own(written_by(step))) << "algorithm " << i;
        EXPECT_FALSE(step.kind == StepKind::kSend && step.to == Area::kOutput) << "algorithm " << i;
      }
    }
  }
}

TEST_P(Schedules, OfOneNodeOnlyCopyWhatIsReduced) {
  const auto lists = all_steps(algorithm(), make_problem(what(), 1, Shape::kEqual));
  if (reduces(what())) {
    const Step copy{StepKind::kCopy, -1, Area::kInput, Area::kOutput, 0, 2, 0};
    EXPECT_EQ(lists[0].steps, std::vector<Step>{copy});
  } else {
    EXPECT_TRUE(lists[0].steps.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Schedules,
    ::testing::Combine(::testing::Values(Algorithm::kRing, Algorithm::kHalvingDoubling,
                                         Algorithm::kRecursiveDoubling, Algorithm::kDoubleBinaryTree,
                                         Algorithm::kBruck, Algorithm::kPairwise, Algorithm::kTwoLevel),
                       ::testing::Values(Collective::kAllReduce, Collective::kReduce,
                                         Collective::kReduceScatter, Collective::kAllGather,
                                         Collective::kBroadcast, Collective::kBarrier)),
    [](const auto& param) {
      return std::string(name_of(std::get<0>(param.param))) + "_" + name_of(std::get<1>(param.param));
    });

TEST(Ring, SendsTwiceAllButOneBlockForAnAllReduce) {
  for (const int nodes : {2, 3, 7, 64}) {
    for (const StepList& list :
         all_steps(Algorithm::kRing, make_problem(Collective::kAllReduce, nodes, Shape::kEqual))) {
      EXPECT_EQ(sent_elements(list), 4u * (nodes - 1));
    }
  }
}

TEST(Ring, TalksToItsNeighboursOnly) {
  const auto lists = all_steps(Algorithm::kRing, make_problem(Collective::kAllReduce, 9, Shape::kThreeToOne));
  for (int node = 0; node < 9; ++node) {
    for (const Step& step : lists[node].steps) {
      EXPECT_EQ(step.peer, (node + (step.kind == StepKind::kSend ? 1 : 8)) % 9);
    }
  }
}

TEST(HalvingDoubling, SendsTwicePerLevelAndNoMoreThanTheRing) {
  for (const int nodes : {2, 4, 8, 64}) {
    const auto problem = make_problem(Collective::kAllReduce, nodes, Shape::kEqual);
    for (const StepList& list : all_steps(Algorithm::kHalvingDoubling, problem)) {
      const auto sends = std::count_if(list.steps.begin(), list.steps.end(),
                                       [](const Step& step) { return step.kind == StepKind::kSend; });
      EXPECT_EQ(sends, 2 * std::countr_zero(static_cast<unsigned>(nodes)));
      EXPECT_EQ(sent_elements(list), 4u * (nodes - 1));
    }
  }
}

TEST(HalvingDoubling, UsesNoMoreScratchThanItSays) {
  for (const int nodes : {2, 3, 5, 8, 13, 64}) {
    for (const Collective what : {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter,
                                  Collective::kAllGather, Collective::kBroadcast}) {
      for (const Shape shape : kShapes) {
        const Problem problem = make_problem(what, nodes, shape);
        EXPECT_EQ(scratch_of(all_steps(Algorithm::kHalvingDoubling, problem)),
                  halving_doubling_scratch(problem))
            << name_of(what) << ", " << nodes << " nodes, shape " << static_cast<int>(shape);
      }
    }
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
