// tuner_test.cc: what is picked for a call, that it can be run, and what is said about it.
#include "daemon/group/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config.h"
#include "daemon/group/cost_measurements.h"
#include "daemon/group/explanation.h"
#include "ipc/buffer_use.h"
#include "tests/unit/daemon_group/tuner_fixture.h"

namespace hdt::daemon {
namespace {

using collectives::Algorithm;
using collectives::Area;
using collectives::Collective;
using collectives::kAlgorithmCount;
using collectives::StepKind;
using ipc::Call;
using ipc::Layout;
using ipc::LinkRates;
using ipc::MemoryRates;
using ipc::NodeRates;
using ipc::Order;
using ipc::Partition;
using ::testing::HasSubstr;

std::vector<collectives::Step> steps_of(Algorithm algorithm, const collectives::Problem& problem) {
  std::vector<collectives::Step> steps;
  const auto schedule = make_schedule(algorithm, problem);
  for (size_t i = 0; const auto step = schedule->step(i); ++i) steps.push_back(*step);
  return steps;
}

bool overlap(const collectives::Step& a, const collectives::Step& b) {
  return a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}

// Where input and output are one buffer of the user, or the input is a sendbuf that must not change.
bool spoils_users_buffers(const std::vector<collectives::Step>& steps) {
  for (const auto& step : steps) {
    const bool writes = step.kind != StepKind::kSend;
    if (writes && step.to == Area::kInput) return true;
    for (const auto& other : steps) {
      const bool sends_input = other.kind == StepKind::kSend && other.from == Area::kInput;
      if (step.kind == StepKind::kRecvReduce && sends_input && overlap(step, other)) return true;
    }
  }
  return false;
}

class EveryAlgorithm : public ::testing::TestWithParam<int> {
 protected:
  Algorithm algorithm() const { return static_cast<Algorithm>(GetParam()); }
};

TEST_P(EveryAlgorithm, IsTakenWhereItIsConfiguredUnlessSomethingPreventsIt) {
  int taken = 0;
  for (uint32_t nodes = 2; nodes <= 9; ++nodes) {
    const Layout layout(nodes, nodes, 1);
    const Order order = one_rank_each(nodes);
    Tuner tuner(layout, order, algorithm());
    for (int what = 0; what < collectives::kCollectiveCount; ++what) {
      for (const uint64_t count : {0, 1, 4097, 9'000, 16'000, 3'000'000}) {
        const Call call = call_of(static_cast<Collective>(what), count);
        const Decision decision = tuner.decide(call);
        const Obstacle obstacle = obstacle_to(algorithm(), call, layout, order);
        EXPECT_EQ(decision.to_configured, obstacle);
        EXPECT_EQ(decision.reason == Reason::kConfigured, obstacle == Obstacle::kNone);
        EXPECT_EQ(obstacle_to(decision.algorithm, call, layout, order), Obstacle::kNone);
        if (obstacle != Obstacle::kNone) continue;
        EXPECT_EQ(decision.algorithm, algorithm());
        ++taken;
      }
    }
  }
  EXPECT_GT(taken, 8 * 6 * 2);
}

TEST_P(EveryAlgorithm, WithoutObstacleLeavesBuffersInPlaceIntactBetweenTwoNodes) {
  const Layout layout(2, 2, 1);
  const Order order = one_rank_each(2);
  for (int what = 0; what < collectives::kCollectiveCount; ++what) {
    const Call call = call_of(static_cast<Collective>(what), 16'000);
    if (!may_be_direct(call, layout)) continue;
    const Partition plan(call, layout);
    bool spoils = false;
    for (uint32_t me = 0; me < 2; ++me) {
      spoils |= spoils_users_buffers(steps_of(algorithm(), problem_of(call, plan.chunk(0), order, me)));
    }
    const bool possible = obstacle_to(algorithm(), call, layout, order) == Obstacle::kNone;
    EXPECT_TRUE(!possible || !spoils) << describe(call);
  }
}

TEST_P(EveryAlgorithm, IsKnownToTheConfigurationByItsName) {
  const std::string name = name_of(algorithm());
  const auto config = load_config({"", {{"class.dp.algorithm", name}}, {}, ""});
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(collectives::parse_algorithm(config.value().class_named("dp").algorithm), algorithm());
}

INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithm, ::testing::Range(0, kAlgorithmCount), [](const auto& number) {
  return std::string(name_of(static_cast<Algorithm>(number.param)));
});

TEST(Tuner, AutoIsNoAlgorithm) { EXPECT_EQ(collectives::parse_algorithm("auto"), std::nullopt); }

TEST(Tuner, OnlyTheRingRunsInPlaceBetweenManyNodes) {
  const Order order = one_rank_each(3);
  Tuner tuner(Layout(3, 3, 1), order, Algorithm::kBruck);
  const Call call = call_of(Collective::kAllReduce, 100'000);
  const Decision decision = tuner.decide(call);
  EXPECT_EQ(decision.algorithm, Algorithm::kRing);
  EXPECT_EQ(decision.reason, Reason::kInPlace);
  EXPECT_EQ(decision.to_configured, Obstacle::kWritesInput);
  EXPECT_THAT(explain(tuner, call, "dp", 0).why,
              HasSubstr("class dp has algorithm \"bruck\", but this call cannot take it"));
}

TEST(Tuner, RecursiveDoublingIsNotForABufferThatIsInputAndOutput) {
  const Order order = one_rank_each(2);
  const Layout layout(2, 2, 1);
  EXPECT_EQ(
      obstacle_to(Algorithm::kRecursiveDoubling, call_of(Collective::kAllReduce, 66'000), layout, order),
      Obstacle::kSendsInput);
  EXPECT_EQ(
      obstacle_to(Algorithm::kRecursiveDoubling, call_of(Collective::kAllReduce, 65'000), layout, order),
      Obstacle::kNone);
}

TEST(Tuner, ScratchThatDoesNotFitASlotIsAnObstacle) {
  std::vector<uint32_t> node_of_rank(17, 0);  // on the first of 16 nodes, and one on each other
  for (uint32_t node = 1; node < 16; ++node) node_of_rank.push_back(node);
  const Order order(node_of_rank, 16);
  Tuner tuner(Layout(32, 16, 17), order, Algorithm::kPairwise);
  const Call call = call_of(Collective::kReduceScatter, 100'000);
  EXPECT_EQ(tuner.decide(call).to_configured, Obstacle::kScratch);
  EXPECT_EQ(tuner.decide(call).algorithm, Algorithm::kRing);
  EXPECT_THAT(explain(tuner, call, "dp", 0).why, HasSubstr("bytes of scratch, a slot has 1048576"));
}

// 10 us and 10 Gbit/s between all.
collectives::CostMeasurements even_measurements(uint32_t nodes) {
  return *cost_measurements(
      std::vector<NodeRates>(nodes, {{8'000'000'000, 8'000'000'000},
                                     std::vector<LinkRates>(nodes, {10'000, 1'250'000'000, 1'250'000'000})}));
}

TEST(Predictions, DecideWhereThereAreFigures) {
  const Order order = one_rank_each(8);
  Tuner tuner(Layout(8, 8, 1), order, std::nullopt);
  const Call small = call_of(Collective::kAllReduce, 2);
  const Call medium = call_of(Collective::kAllReduce, 16'384);
  EXPECT_EQ(tuner.decide(medium).reason, Reason::kChunkSize);
  EXPECT_TRUE(tuner.predictions(medium).empty());
  tuner.set_measurements(even_measurements(8));
  EXPECT_EQ(tuner.decide(small).algorithm, Algorithm::kRecursiveDoubling);
  EXPECT_EQ(tuner.decide(small).reason, Reason::kPredicted);
  EXPECT_EQ(tuner.decide(medium).algorithm, Algorithm::kPairwise);
  const Call in_place = call_of(Collective::kAllReduce, 1'000'000);
  EXPECT_EQ(tuner.decide(in_place).algorithm, Algorithm::kRing);
  EXPECT_EQ(tuner.decide(in_place).reason, Reason::kInPlace);
}

// Node 3's links carry half as much as those between the others.
collectives::CostMeasurements one_at_half(uint64_t noise) {
  std::vector<NodeRates> table(
      4, {{8'000'000'000, 8'000'000'000}, std::vector<LinkRates>(4, {10'000, 125'000'000, 125'000'000})});
  for (size_t from = 0; from < 4; ++from) {
    for (size_t to = 0; to < 4; ++to) {
      uint64_t& rate = table[from].links[to].bytes_s;
      if (noise != 0) rate -= noise * from;
      if (noise == 0 && (from == 3 || to == 3)) rate /= 2;
    }
  }
  return *cost_measurements(table);
}

TEST(UnequalLinks, AreGivenUnequalParts) {
  const Order order = one_rank_each(4);
  const Layout layout(4, 4, 1);
  Tuner tuner(layout, order, std::nullopt);
  const Call large = call_of(Collective::kAllReduce, 16'000'000);
  tuner.set_measurements(one_at_half(0));
  EXPECT_EQ(tuner.decide(large).algorithm, Algorithm::kPairwise);
  EXPECT_EQ(tuner.decide(large).reason, Reason::kPredicted);
  const auto weights = tuner.weights_of(large, Algorithm::kPairwise);
  ASSERT_EQ(weights.size(), 4U);
  EXPECT_EQ(weights[3], 0U);
  const ipc::Chunk chunk = Partition(large, layout).chunk(0);
  const auto offsets = tuner.problem(large, chunk, Algorithm::kPairwise, 0).block_offsets;
  EXPECT_EQ(offsets[3], chunk.elements);
  // The ring's own blocks stay equal, and other collectives have blocks that are not for us to choose.
  EXPECT_EQ(tuner.problem(large, chunk, Algorithm::kRing, 0).block_offsets[3], chunk.elements * 3 / 4);
  EXPECT_TRUE(tuner.weights_of(call_of(Collective::kReduceScatter, 1'000), Algorithm::kPairwise).empty());
  const auto predictions = tuner.predictions(large);
  const auto seconds = [&](Algorithm algorithm) {
    return std::ranges::find(predictions, algorithm, &collectives::Candidate::algorithm)->seconds;
  };
  EXPECT_GT(seconds(Algorithm::kRing), 1.3 * seconds(Algorithm::kPairwise));
  const Explanation explained = explain(tuner, large, "dp", 0);
  EXPECT_EQ(explained.weights.size(), 4U);
  ASSERT_EQ(explained.rates.size(), 4U);
  EXPECT_EQ(explained.rates[0], (collectives::OwnerRates{125'000'000, 8'000'000'000, 0}));
  EXPECT_EQ(explained.rates[3], (collectives::OwnerRates{62'500'000, 8'000'000'000, 0}));
  EXPECT_EQ(explained.slowest_node, 3U);
  EXPECT_FALSE(explained.waits_for_memory);
  EXPECT_GT(explained.equal_parts_s, 1.3 * seconds(Algorithm::kPairwise));
}

// Measured rates of equal links differ a little.
TEST(UnequalLinks, ArePartedEquallyIfTheyAreNearlyAlike) {
  const Order order = one_rank_each(4);
  Tuner tuner(Layout(4, 4, 1), order, std::nullopt);
  const Call large = call_of(Collective::kAllReduce, 16'000'000);
  tuner.set_measurements(one_at_half(1'500'000));
  EXPECT_TRUE(tuner.weights_of(large, Algorithm::kPairwise).empty());
  EXPECT_EQ(tuner.decide(large).algorithm, Algorithm::kRing);
  EXPECT_EQ(tuner.decide(large).reason, Reason::kInPlace);
  for (const auto& candidate : explain(tuner, large, "dp", 0).candidates)
    EXPECT_EQ(candidate.left_out.empty(), candidate.algorithm == Algorithm::kRing);
}

Call part_of(Collective what, int32_t root, uint8_t part) {
  Call call = call_of(what, 131'072);
  call.root = root;
  call.part = part;
  return call;
}

// How often each node is the far end of the chains from `root`, of all 127 parts.
std::vector<int> far_ends(const Tuner& tuner, Collective what, int32_t root) {
  std::vector<int> found(tuner.layout().nodes);
  for (uint8_t part = 1; part <= ipc::kPartNumbers; ++part) {
    const Call call = part_of(what, root, part);
    const int far_end =
        tuner.problem(call, Partition(call, tuner.layout()).chunk(0), Algorithm::kRing, 0).far_end;
    EXPECT_NE(far_end, root);
    if (far_end >= 0) ++found[static_cast<size_t>(far_end)];
  }
  return found;
}

// The slow node holds a half, so it is the far end of all chains from the others, and they are of its chains.
TEST(PartsOfCallsByCounts, AreChainsWhoseFarEndsHaveSlowLinks) {
  const Order order = one_rank_each(4);
  Tuner tuner(Layout(4, 4, 1), order, std::nullopt);
  tuner.set_measurements(one_at_half(0));
  EXPECT_EQ(std::vector<uint64_t>(tuner.holder_rates().begin(), tuner.holder_rates().end()),
            (std::vector<uint64_t>{125'000'000, 125'000'000, 125'000'000, 62'500'000}));
  for (const Collective what : {Collective::kBroadcast, Collective::kReduce}) {
    EXPECT_EQ(tuner.decide(part_of(what, 1, 3)).algorithm, Algorithm::kRing);
    EXPECT_EQ(tuner.decide(part_of(what, 1, 3)).reason, Reason::kPart);
    for (int32_t root = 0; root < 3; ++root)
      EXPECT_EQ(far_ends(tuner, what, root), (std::vector<int>{0, 0, 0, 127}));
    const std::vector<int> of_slow = far_ends(tuner, what, 3);
    for (const size_t node : {0, 1, 2}) EXPECT_NEAR(of_slow[node], 127 / 3.0, 3);
  }
  // Calls that are no parts keep their chain: the order of a reduce's operands is that of the nodes.
  const Call whole = part_of(Collective::kReduce, 1, 0);
  EXPECT_EQ(tuner.problem(whole, {0, whole.count}, Algorithm::kRing, 0).far_end, -1);
  EXPECT_EQ(
      tuner.problem(part_of(Collective::kReduce, 1, 1), {0, 9}, Algorithm::kDoubleBinaryTree, 0).far_end, -1);
}

TEST(PartsOfCallsByCounts, GoRoundTheRingIfLinksAreAlikeOrNotMeasured) {
  const Order order = one_rank_each(4);
  Tuner tuner(Layout(4, 4, 1), order, std::nullopt);
  EXPECT_TRUE(tuner.rates().empty() && tuner.holder_rates().empty());
  EXPECT_EQ(far_ends(tuner, Collective::kBroadcast, 2), std::vector<int>(4));
  tuner.set_measurements(one_at_half(1'500'000));
  EXPECT_EQ(far_ends(tuner, Collective::kBroadcast, 2), std::vector<int>(4));
  tuner.set_measurements(one_at_half(0));
  tuner.set_measurements(std::nullopt);
  EXPECT_TRUE(tuner.rates().empty() && tuner.holder_rates().empty());
  EXPECT_EQ(far_ends(tuner, Collective::kBroadcast, 2), std::vector<int>(4));
}

TEST(PartsOfCallsByCounts, TakeTheConfiguredAlgorithm) {
  const Order order = one_rank_each(4);
  Tuner tuner(Layout(4, 4, 2), order, Algorithm::kDoubleBinaryTree);
  Call small = part_of(Collective::kBroadcast, 1, 3);
  small.count = 1'000;
  EXPECT_EQ(tuner.decide(small).algorithm, Algorithm::kDoubleBinaryTree);
  EXPECT_EQ(tuner.decide(small).reason, Reason::kConfigured);
}

// The schedule would write over what a user's buffer still has.
TEST(ByChunkSize, NeverPicksWhatTheCallCannotTake) {
  for (uint32_t nodes = 2; nodes <= 6; ++nodes) {
    const Order order = one_rank_each(nodes);
    for (const uint64_t slot : {uint64_t{4} << 10, uint64_t{64} << 10, uint64_t{1} << 20}) {
      Layout layout(nodes, nodes, 1);
      layout.scratch_bytes = slot;
      const Tuner tuner(layout, order, std::nullopt);
      for (const Collective what : {Collective::kAllReduce, Collective::kReduceScatter,
                                    Collective::kAllGather, Collective::kBroadcast, Collective::kReduce}) {
        for (uint64_t count = 1; count < 4'000'000; count *= 3) {
          const Call call = call_of(what, count);
          EXPECT_EQ(obstacle_to(tuner.by_chunk_size(call), call, layout, order), Obstacle::kNone)
              << describe(call) << ", " << nodes << " nodes, scratch " << slot;
        }
      }
    }
  }
}

TEST(Predictions, AreTheSameOnEveryNodeAndMadeOnceForAClassOfCalls) {
  const Order order = one_rank_each(5);
  Tuner here(Layout(5, 5, 1), order, std::nullopt);
  Tuner there(Layout(5, 5, 1), order, std::nullopt);
  here.set_measurements(even_measurements(5));
  there.set_measurements(even_measurements(5));
  for (const uint64_t count : {1'025, 1'500, 2'047}) {
    const Call call = call_of(Collective::kAllReduce, count);
    EXPECT_EQ(&here.predictions(call), &here.predictions(call_of(Collective::kAllReduce, 1'024)));
    EXPECT_EQ(here.decide(call).algorithm, there.decide(call).algorithm);
  }
  const auto& of_class = here.predictions(call_of(Collective::kAllReduce, 1'024));
  EXPECT_NE(&of_class, &here.predictions(call_of(Collective::kAllReduce, 2'048)));
  EXPECT_NE(&of_class, &here.predictions(call_of(Collective::kAllGather, 1'024)));
  Call rooted = call_of(Collective::kBroadcast, 1'024);
  const auto& from_first = here.predictions(rooted);
  rooted.root = 3;
  EXPECT_NE(&from_first, &here.predictions(rooted));
  EXPECT_EQ(Tuner::representative(call_of(Collective::kAllReduce, 2'047)).count, 1'024U);
}

// Beyond what the nodes do: also a call without bytes goes from the rank to its daemon and back.
TEST(Predictions, AreExplainedWithTheWayToTheDaemon) {
  const Order order = one_rank_each(2);
  Tuner tuner(Layout(2, 2, 1), order, std::nullopt);
  const collectives::CostMeasurements measurements = even_measurements(2);
  tuner.set_measurements(measurements);
  const Call call = call_of(Collective::kAllReduce, 1);
  const collectives::Operation between{problem_of(call, Partition(call, tuner.layout()).chunk(0), order, 0),
                                       call.type, 1, 1};
  const Explanation all = explain(tuner, call, "dp", 25e-6);
  EXPECT_EQ(all.hand_over_s, 25e-6);
  for (const auto& candidate : all.candidates) {
    if (!candidate.left_out.empty()) continue;
    EXPECT_NEAR(candidate.seconds, 25e-6 + collectives::predict(candidate.algorithm, between, measurements),
                1e-9);
  }
}

// Ranks may write any figure: one without sense leaves a prediction that can be read.
TEST(Predictions, TheWayIsThatOfTheSlowestRankWithinReason) {
  EXPECT_DOUBLE_EQ(hand_over_seconds({12'000, 15'000, 0}), 30e-6);
  EXPECT_DOUBLE_EQ(hand_over_seconds({0, 0}), hand_over_seconds({}));
  EXPECT_GT(hand_over_seconds({}), 0);
  EXPECT_LE(hand_over_seconds({UINT64_MAX}), 1.0);
}

TEST(Predictions, AreExplainedWithTheFastestFirst) {
  const Order order = one_rank_each(8);
  Tuner tuner(Layout(8, 8, 1), order, std::nullopt);
  tuner.set_measurements(even_measurements(8));
  const Explanation all = explain(tuner, call_of(Collective::kAllReduce, 16'384), "dp", 0);
  EXPECT_EQ(all.candidates.front().algorithm, all.decision.algorithm);
  double last = 0;
  for (const auto& candidate : all.candidates) {
    if (!candidate.left_out.empty()) continue;
    EXPECT_GE(candidate.seconds, last);
    EXPECT_GT(candidate.seconds, 0);
    last = candidate.seconds;
  }
}

TEST(Explain, NamesEveryAlgorithmOnceAndThePickedAmongThosePossible) {
  const Order order = one_rank_each(4);
  Tuner tuner(Layout(4, 4, 1), order, std::nullopt);
  for (int what = 0; what < collectives::kCollectiveCount; ++what) {
    for (const uint64_t count : {1, 5'000, 1'000'000}) {
      const Explanation all = explain(tuner, call_of(static_cast<Collective>(what), count), "dp", 0);
      std::vector<int> seen(kAlgorithmCount, 0);
      for (const auto& candidate : all.candidates) {
        ++seen[static_cast<size_t>(candidate.algorithm)];
        EXPECT_TRUE(candidate.algorithm != all.decision.algorithm || candidate.left_out.empty());
      }
      EXPECT_EQ(seen, std::vector<int>(kAlgorithmCount, 1));
      EXPECT_FALSE(all.why.empty());
    }
  }
}

}  // namespace
}  // namespace hdt::daemon
