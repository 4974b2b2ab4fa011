// checker_test.cc: each thing that the checker looks for, in the smallest schedule that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

using ::testing::HasSubstr;

constexpr Area kIn = Area::kInput;
constexpr Area kOut = Area::kOutput;
constexpr Area kScratch = Area::kScratch;

Step send(int peer, Area from, uint64_t offset, Area to, uint64_t target, uint64_t length = 1) {
  return {StepKind::kSend, peer, from, to, offset, length, target};
}
Step recv(int peer, Area to, uint64_t offset, uint64_t length = 1) {
  return {StepKind::kRecv, peer, kIn, to, offset, length, 0};
}
Step recv_reduce(int peer, Area from, Area to, uint64_t offset, uint64_t scratch, uint64_t length = 1) {
  return {StepKind::kRecvReduce, peer, from, to, offset, length, scratch};
}

// One element, reduced to node 0 of two.
const Problem kReduceProblem{Collective::kReduce, 2, 0, 0, {0, 1, 1}};
std::vector<StepList> good_reduce() {
  return {{{recv_reduce(1, kIn, kOut, 0, 0)}, 1}, {{send(0, kIn, 0, kScratch, 0)}, 0}};
}

TEST(Checker, AcceptsWhatIsRight) { EXPECT_EQ(check(good_reduce(), kReduceProblem, 1), ""); }

TEST(Checker, NamesNodeAndStep) {
  auto lists = good_reduce();
  lists[1].steps.clear();
  EXPECT_EQ(check(lists, kReduceProblem, 1),
            "node 0, step 0 (recv_reduce from 1: input to output [0, +1), scratch 0) has no send");
}

TEST(Checker, FindsWrongProblems) {
  EXPECT_THAT(check(good_reduce(), {Collective::kReduce, 3, 0, 0, {0, 1, 1, 1}}, 1),
              HasSubstr("one step list"));
  EXPECT_THAT(check(good_reduce(), {Collective::kReduce, 2, 0, 2, {0, 1, 1}}, 1), HasSubstr("root"));
  EXPECT_THAT(check(good_reduce(), {Collective::kReduce, 2, 0, 0, {0, 2, 1}}, 1), HasSubstr("block_offsets"));
  EXPECT_THAT(check(Algorithm::kRing, {Collective::kReduce, 2, 0, 0, {0, 2}}, 1), HasSubstr("block_offsets"));
}

TEST(Checker, FindsSendsWithoutTheirRecv) {
  auto lists = good_reduce();
  lists[0].steps.clear();
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("has no recv"));
}

TEST(Checker, FindsSendsToAnotherPlace) {
  auto lists = good_reduce();
  lists[1].steps[0].to = kOut;
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("does not send what"));
}

TEST(Checker, FindsRangesOutsideTheirArea) {
  auto lists = good_reduce();
  lists[1].steps[0].offset = 1;
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("leaves its area"));
  lists[1].steps[0].offset = UINT64_MAX;
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("leaves its area"));
  lists = good_reduce();
  lists[0].scratch_length = 0;
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("leaves the scratch"));
}

TEST(Checker, FindsTooMuchScratch) {
  EXPECT_THAT(check(good_reduce(), kReduceProblem, 0), HasSubstr("needs 1 elements of scratch"));
}

TEST(Checker, FindsStepsThatAreNotAllowed) {
  auto lists = good_reduce();
  lists[0].steps[0].to = kIn;
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("overwrites its input"));
  lists = good_reduce();
  lists[0].steps[0].peer = 0;
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("has no such peer"));
  lists = good_reduce();
  lists[0].steps.push_back({StepKind::kCopy, -1, kIn, kOut, 0, 0, 0});
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("moves nothing"));
}

TEST(Checker, FindsIncompleteResults) {
  const std::vector<StepList> lists{{{{StepKind::kCopy, -1, kIn, kOut, 0, 1, 0}}, 0}, {}};
  EXPECT_EQ(check(lists, kReduceProblem, 1), "node 0, output element 0 lacks the contribution of node 1");
  EXPECT_EQ(check(std::vector<StepList>(2), kReduceProblem, 1), "node 0, output element 0 was never written");
}

TEST(Checker, FindsContributionsUsedTwice) {
  const std::vector<StepList> lists{{{recv_reduce(1, kIn, kOut, 0, 0), recv_reduce(1, kOut, kIn, 0, 1)}, 2},
                                    {{send(0, kIn, 0, kScratch, 0), send(0, kIn, 0, kScratch, 1)}, 0}};
  EXPECT_THAT(check(lists, kReduceProblem, 2), HasSubstr("uses the contribution of node 1 twice"));
}

TEST(Checker, FindsScratchUsedTwice) {
  const std::vector<StepList> lists{{{recv_reduce(1, kIn, kOut, 0, 0), recv_reduce(1, kOut, kIn, 0, 0)}, 1},
                                    {{send(0, kIn, 0, kScratch, 0), send(0, kIn, 0, kScratch, 0)}, 0}};
  EXPECT_THAT(check(lists, kReduceProblem, 1), HasSubstr("uses scratch that"));
}

// Node 0 gathers the contributions of the others in scratch, and combines them with its own.
TEST(Checker, FindsScratchThatNoReceiveHasFilled) {
  const Problem problem{Collective::kReduce, 3, 0, 0, {0, 1, 1, 1}};
  const auto gather = [](int peer, uint64_t target) {
    return Step{StepKind::kRecv, peer, kIn, kScratch, 0, 1, target};
  };
  Step reduce{StepKind::kReduce, -1, kIn, kOut, 0, 1, 0};
  reduce.gathered = 2;
  const std::vector<StepList> right{{{gather(1, 0), gather(2, 1), reduce}, 2},
                                    {{send(0, kIn, 0, kScratch, 0)}, 0},
                                    {{send(0, kIn, 0, kScratch, 1)}, 0}};
  EXPECT_EQ(check(right, problem, 2), "");
  const auto with = [&](const auto& change) {
    auto wrong = right;
    change(wrong);
    return check(wrong, problem, 2);
  };
  EXPECT_THAT(
      with([](auto& lists) { std::swap(lists[0].steps[1], lists[0].steps[2]); }),
      HasSubstr("(reduce: input to output [0, +1), number 0 beside 2 of scratch 0) reads scratch that "
                "no receive before it has filled"));
  EXPECT_THAT(with([](auto& lists) { lists[0].steps[2].gathered = 3; }), HasSubstr("reads scratch that"));
  EXPECT_THAT(with([](auto& lists) { lists[0].steps[2].gathered = 1; }), HasSubstr("lacks the contribution"));
  EXPECT_THAT(with([](auto& lists) { lists[0].steps[2].gathered = 0; }), HasSubstr("has no such place"));
  EXPECT_THAT(with([](auto& lists) { lists[0].steps[2].place = 3; }), HasSubstr("has no such place"));
  EXPECT_THAT(with([](auto& lists) { lists[0].scratch_length = 1; }), HasSubstr("leaves the scratch"));
  EXPECT_THAT(with([](auto& lists) {
                lists[0].steps[1].target = 0;
                lists[2].steps[0].target = 0;
              }),
              HasSubstr("reads scratch that"));
}

TEST(Checker, FindsElementsMixedUp) {
  const Problem problem{Collective::kReduce, 2, 0, 0, {0, 2, 2}};
  const std::vector<StepList> lists{{{recv_reduce(1, kIn, kOut, 0, 0), recv_reduce(1, kIn, kOut, 1, 1)}, 2},
                                    {{send(0, kIn, 1, kScratch, 0), send(0, kIn, 0, kScratch, 1)}, 0}};
  EXPECT_THAT(check(lists, problem, 2), HasSubstr("combines element "));
}

TEST(Checker, FindsReadsOfNothing) {
  const Problem problem{Collective::kBroadcast, 2, 0, 0, {0, 1, 1}};
  const std::vector<StepList> lists{{{send(1, kIn, 0, kOut, 0)}, 0}, {{recv(0, kOut, 0)}, 0}};
  EXPECT_THAT(check(lists, problem, 0), HasSubstr("reads what nothing has written"));
}

// Two nodes pass an element each to the other, but receive first.
TEST(Checker, FindsDeadlocks) {
  const Problem problem{Collective::kAllGather, 2, 0, 0, {0, 1, 2}};
  const std::vector<StepList> right{{{send(1, kOut, 0, kOut, 0), recv(1, kOut, 1)}, 0},
                                    {{send(0, kOut, 1, kOut, 1), recv(0, kOut, 0)}, 0}};
  EXPECT_EQ(check(right, problem, 0), "");
  std::vector<StepList> wrong = right;
  for (StepList& list : wrong) std::swap(list.steps[0], list.steps[1]);
  EXPECT_THAT(check(wrong, problem, 0), HasSubstr("deadlock: node 0, step 0 (recv from 1"));
}

// Node 1 may get the root's data, before it has sent what was at that place. (The result is right in many
// runs.)
TEST(Checker, FindsPayloadLandingOnARangeInUse) {
  const Problem problem{Collective::kReduce, 2, 0, 0, {0, 1, 1}};
  const std::vector<StepList> right{{{recv_reduce(1, kIn, kOut, 0, 0), send(1, kOut, 0, kIn, 0)}, 1},
                                    {{send(0, kIn, 0, kScratch, 0), recv(0, kIn, 0)}, 0}};
  EXPECT_EQ(check(right, problem, 1), "");
  std::vector<StepList> wrong = right;
  wrong[0].steps[1].from = kIn;  // no longer depends on what node 1 has sent
  EXPECT_THAT(
      check(wrong, problem, 1),
      HasSubstr("node 1, step 1 (recv from 0: input [0, +1)): its payload may land while node 1, step 0"));
}

TEST(Checker, FindsPayloadLandingBeforeTheNodesOwnData) {
  const std::vector<StepList> lists{
      {{recv_reduce(1, kIn, kOut, 0, 0), recv(1, kIn, 0)}, 1},
      {{send(0, kIn, 0, kScratch, 0), recv(0, kIn, 0), send(0, kIn, 0, kIn, 0)}, 0}};
  auto wrong = lists;
  wrong[0].steps = {send(1, kIn, 0, kOut, 0)};
  wrong[1].steps = {recv(0, kOut, 0), {StepKind::kCopy, -1, kIn, kOut, 0, 1, 0}};
  wrong[0].steps[0].to = kIn;
  wrong[1].steps[0].to = kIn;
  EXPECT_THAT(check(wrong, kReduceProblem, 1), HasSubstr("may land before the node's own data is there"));
}

TEST(Checker, FindsBarriersThatLetThrough) {
  const Problem problem{Collective::kBarrier, 3, 0, 0, {0, 0, 0, 0}};
  auto lists = all_steps(Algorithm::kHalvingDoubling, problem);
  ASSERT_EQ(check(lists, problem, 0), "");
  for (StepList& list : lists) list.steps.resize(2);  // one round instead of two
  EXPECT_EQ(check(lists, problem, 0), "node 0 may pass the barrier before node 1 has started");
}

}  // namespace
}  // namespace hdt::collectives::testing
