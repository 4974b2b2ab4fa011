// select_algorithm_test.cc: the rule, and that every node gets the same answer.
#include <gtest/gtest.h>

#include "collectives/algorithms.h"
#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 40;

Problem even(Collective what, int nodes, uint64_t per_block) {
  Problem problem{what, nodes, 0, 0, {0}};
  for (int i = 0; i < nodes; ++i) problem.block_offsets.push_back(problem.block_offsets.back() + per_block);
  return problem;
}

TEST(SelectAlgorithm, TakesFewStepsForSmallChunksAndTheRingForLargeOnes) {
  EXPECT_EQ(select_algorithm(even(Collective::kAllReduce, 8, 1), DataType::kFloat32, kPlenty),
            Algorithm::kRecursiveDoubling);
  EXPECT_EQ(select_algorithm(even(Collective::kAllReduce, 7, 1), DataType::kFloat32, kPlenty),
            Algorithm::kHalvingDoubling);
  EXPECT_EQ(select_algorithm(even(Collective::kReduceScatter, 8, 1), DataType::kFloat32, kPlenty),
            Algorithm::kHalvingDoubling);
  EXPECT_EQ(select_algorithm(even(Collective::kAllReduce, 8, 1024), DataType::kFloat32, kPlenty),
            Algorithm::kRecursiveDoubling);
  EXPECT_EQ(select_algorithm(even(Collective::kAllReduce, 8, 2048), DataType::kFloat32, kPlenty),
            Algorithm::kHalvingDoubling);
  EXPECT_EQ(select_algorithm(even(Collective::kAllReduce, 8, 1 << 20), DataType::kFloat32, kPlenty),
            Algorithm::kRing);
  EXPECT_EQ(select_algorithm(even(Collective::kBarrier, 8, 0), DataType::kFloat32, 0),
            Algorithm::kHalvingDoubling);
}

TEST(SelectAlgorithm, CountsBytesNotElements) {
  EXPECT_EQ(select_algorithm(even(Collective::kAllReduce, 2, 8192), DataType::kFloat32, kPlenty),
            Algorithm::kHalvingDoubling);
  EXPECT_EQ(select_algorithm(even(Collective::kAllReduce, 2, 8192), DataType::kFloat64, kPlenty),
            Algorithm::kRing);
}

TEST(SelectAlgorithm, TakesOnlyWhatFitsTheScratchOfEveryNode) {
  for (const Shape shape : kShapes) {
    for (int nodes = 1; nodes <= 64; ++nodes) {
      for (int what = 0; what < kCollectiveCount; ++what) {
        Problem problem = make_problem(static_cast<Collective>(what), nodes, shape);
        const Algorithm first = select_algorithm(problem, DataType::kInt32, problem.elements());
        ASSERT_LE(scratch_of(all_steps(first, problem)), problem.elements());
        for (problem.me = 0; problem.me < nodes; ++problem.me) {
          ASSERT_EQ(select_algorithm(problem, DataType::kInt32, problem.elements()), first);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
