// mismatch_test.cc: ranks that call different things, on one node and on two: all are told, with both calls
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Mismatch : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void differ(const std::string& first, const std::string& second, const std::string& a,
              const std::string& b) {
    World world(2);
    auto ranks = world.group(GetParam());
    ranks[0]->start(first);
    ranks[1]->start(second);
    for (auto& rank : ranks) {
      const Answer answer = rank->finish();
      EXPECT_EQ(answer.result, HDT_ERR_MISMATCH) << answer.text;
      EXPECT_THAT(answer.text, AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr(a), HasSubstr(b)));
    }
    EXPECT_EQ(ranks[0]->call("barrier").result, HDT_ERR_MISMATCH) << "later calls fail alike";
    world.expect_serving();
  }
};

TEST_P(Mismatch, Count) { differ("allreduce 100 4 0", "allreduce 101 4 0", "100", "101"); }
TEST_P(Mismatch, CountOfManyChunks) { differ("allreduce 1000000 4 0", "allreduce 9 4 0", "1000000", "9"); }
TEST_P(Mismatch, Type) { differ("allreduce 64 4 0", "allreduce 64 0 0", "float32", "int32"); }
TEST_P(Mismatch, Reduction) { differ("allreduce 64 4 0", "allreduce 64 4 3", "sum", "max"); }
TEST_P(Mismatch, Root) { differ("broadcast 64 4 0", "broadcast 64 4 1", "root 0", "root 1"); }
TEST_P(Mismatch, Kind) { differ("allreduce 64 4 0", "broadcast 64 4 0", "allreduce", "broadcast"); }
TEST_P(Mismatch, KindBesideABarrier) { differ("allreduce 64 4 0", "barrier", "allreduce", "barrier"); }
TEST_P(Mismatch, SizeOfAMessage) {
  World world(2);
  auto ranks = world.group(GetParam());
  EXPECT_EQ(ranks[0]->call("send 10 4 1").result, HDT_SUCCESS);  // small: complete before it is received
  const Answer answer = ranks[1]->call("recv 11 4 0");
  EXPECT_EQ(answer.result, HDT_ERR_MISMATCH) << answer.text;
  EXPECT_THAT(answer.text, AllOf(HasSubstr("40 bytes"), HasSubstr("44")));
  EXPECT_EQ(ranks[0]->call("barrier").result, HDT_ERR_MISMATCH);
  world.expect_serving();
}

INSTANTIATE_TEST_SUITE_P(All, Mismatch, ::testing::Values(std::vector<int>{0, 0}, std::vector<int>{0, 1}),
                         [](const auto& shape) { return shape.param[1] == 0 ? "OneNode" : "TwoNodes"; });

}  // namespace
}  // namespace hdt::testing
