// sharded_equality_test.cc: training with sharded optimizer states is training without, and both are training
// in one process; and the check that says so finds every fault that is put in on purpose.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/saboteur.h"
#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kComparedSteps = HDT_COMPARED_STEPS;

TrainerOptions compared_run(bool clips) {
  TrainerOptions result;
  result.seed = 7;
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 2, .total_steps = kComparedSteps};
  result.clip_gradient_norm = clips ? 0.5 : 0;  // low enough that each step clips
  result.bucket_elements = 100;                 // several buckets a rank
  return result;
}

bool near(double found, double expected, double relative) {
  return std::abs(found - expected) <= relative * std::abs(expected);
}

// How the two runs differ beyond rounding, "" if they do not; also if the replicas of `run` are not one
// model.
std::string difference(const RunResult& run, const RunResult& expected) {
  if (run.steps.size() != kComparedSteps || expected.steps.size() != kComparedSteps)
    return "a run has not ended";
  for (int64_t step = 0; step < kComparedSteps; ++step) {
    const StepResult& one = run.steps[step];
    const StepResult& other = expected.steps[step];
    if (one.tokens != other.tokens) return fmt::format("step {}: tokens", step);
    if (!near(one.loss, other.loss, 1e-5)) return fmt::format("step {}: {} {}", step, one.loss, other.loss);
    if (!near(one.gradient_norm, other.gradient_norm, 1e-4))
      return fmt::format("step {}: norm {} {}", step, one.gradient_norm, other.gradient_norm);
  }
  for (const auto& replica : run.parameters) {
    if (replica != run.parameters.front()) return "replicas have other parameters";
    if (replica.back() != replica.rbegin()[1]) return "embedding and head have other matrices";
  }
  return "";
}

// On the same layout there is nothing to round otherwise but the sum of squares, which only clipping uses.
void expect_same_bits(const RunResult& sharded, const RunResult& plain, bool clips) {
  EXPECT_EQ(difference(sharded, plain), "");
  for (int64_t step = 0; step < kComparedSteps; ++step) {
    EXPECT_TRUE(
        near(sharded.steps[step].gradient_norm, plain.steps[step].gradient_norm, clips ? 1e-6 : 1e-12));
    if (clips) continue;
    EXPECT_EQ(sharded.steps[step].loss, plain.steps[step].loss);
  }
  EXPECT_TRUE(clips || sharded.parameters == plain.parameters);
}

TEST(ShardedEquality, AllLayoutsAndSchedulesAreOneProcess) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::vector<NamedLayout> layouts = layout_table();
  std::ranges::move(random_layouts(16, random), std::back_inserter(layouts));
  ASSERT_GE(layouts.size(), 40U);
  for (const NamedLayout& named : layouts) {
    const bool clips = random() % 2 == 0;
    TrainerOptions with = compared_run(clips);
    with.bucket_elements = std::vector<size_t>{1, 100, 250, 1'000'000}[random() % 4];
    const ShardOptions shards = random_shards(named.layout, random);
    SCOPED_TRACE(fmt::format("{}; weights {}, buckets of {}", named.name, fmt::join(shards.weights, " "),
                             with.bucket_elements));
    const RunResult one = train(one_process(named.layout), FakeShape(), kComparedSteps, with);
    const RunResult plain = train(named.layout, FakeShape(), kComparedSteps, with);
    EXPECT_EQ(difference(plain, one), "");
    for (const ScheduleKind kind : kScheduleKinds) {
      SCOPED_TRACE(schedule_name(kind));
      with.schedule = kind;
      with.shards = shards;
      const RunResult run = train(named.layout, FakeShape(), kComparedSteps, with);
      EXPECT_EQ(difference(run, one), "");
      expect_same_bits(run, plain, clips);
      if (HasFailure()) return;
    }
    EXPECT_LT(one.steps.back().loss, 0.98 * one.steps.front().loss);  // it did learn
  }
}

// A matrix that embedding and head share, on one rank or on two of a replica.
TEST(ShardedEquality, ATiedMatrixIsTrainedAsInOneProcess) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::vector<NamedLayout> layouts = layout_table();
  std::ranges::move(random_layouts(16, random), std::back_inserter(layouts));
  const std::vector<std::vector<Replica>> chunked = {{{{1, 1, 1, 1}, 1, 4, 2}},
                                                     {{{1, 1, 1, 1}, 2, 2, 2}, {{1, 3}, 2, 2}, {{4}, 1, 1}}};
  for (const std::vector<Replica>& replicas : chunked)
    layouts.push_back({"chunks", Layout(4, replicas, RankOrder::kTpPpDp)});
  FakeShape shape;
  shape.tied = true;
  for (const NamedLayout& named : layouts) {
    const Layout layout = named.layout.with_tied_unit();
    const bool clips = random() % 2 == 0;
    TrainerOptions with = compared_run(clips);
    with.bucket_elements = std::vector<size_t>{1, 100, 250, 1'000'000}[random() % 4];
    const RunResult one = train(one_process(layout), shape, kComparedSteps, with);
    EXPECT_LT(one.steps.back().loss, 0.99 * one.steps.front().loss);
    with.schedule = named.name == "chunks" ? ScheduleKind::kInterleaved
                                           : kScheduleKinds[random() % std::size(kScheduleKinds)];
    SCOPED_TRACE(
        fmt::format("{}, {}, buckets of {}", named.name, schedule_name(with.schedule), with.bucket_elements));
    const RunResult plain = train(layout, shape, kComparedSteps, with);
    EXPECT_EQ(difference(plain, one), "");
    with.shards = random_shards(layout, random);
    SCOPED_TRACE(fmt::format("weights {}", fmt::join(with.shards.weights, " ")));
    const RunResult sharded = train(layout, shape, kComparedSteps, with);
    EXPECT_EQ(difference(sharded, one), "");
    expect_same_bits(sharded, plain, clips);
    if (HasFailure()) return;
  }
}

// Without weights all owners keep as much.
TEST(ShardedEquality, EqualShardsNeedNoWeights) {
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  TrainerOptions with = compared_run(true);
  const RunResult plain = train(layout, FakeShape(), kComparedSteps, with);
  with.shards.sharded = true;
  expect_same_bits(train(layout, FakeShape(), kComparedSteps, with), plain, true);
}

class FaultTest : public ::testing::Test {
 protected:
  // How a run with the fault differs from one process.
  static std::string found(Fault fault, const std::vector<Replica>& replicas, bool sharded) {
    const Layout layout(4, replicas, RankOrder::kTpPpDp);
    TrainerOptions with = compared_run(true);
    const RunResult one = train(one_process(layout), FakeShape(), kComparedSteps, with);
    with.shards.sharded = sharded;
    const RunResult honest = train(layout, FakeShape(), kComparedSteps, with, sabotage(Fault::kNone, layout));
    EXPECT_EQ(difference(honest, one), "");
    return difference(train(layout, FakeShape(), kComparedSteps, with, sabotage(fault, layout)), one);
  }
  static void expect_found(Fault fault, const std::vector<Replica>& replicas) {
    for (const bool sharded : {false, true}) EXPECT_NE(found(fault, replicas, sharded), "") << sharded;
  }
};

const std::vector<Replica> kUnequal = {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}};
const std::vector<Replica> kSizesDiffer = {{{4}, 4, 2}, {{4}, 2, 2}};

TEST_F(FaultTest, AStaleShardOnOneRankInOneStep) {
  EXPECT_NE(found(Fault::kStaleParameters, kUnequal, true), "");
  EXPECT_NE(found(Fault::kStaleParameters, kSizesDiffer, true), "");
  EXPECT_EQ(found(Fault::kStaleParameters, kUnequal, false), "");  // nothing is gathered
}

TEST_F(FaultTest, AShareOfTheNormThatIsCountedTwice) {
  EXPECT_NE(found(Fault::kNormCountedTwice, kUnequal, true), "");
  EXPECT_NE(found(Fault::kNormCountedTwice, kSizesDiffer, true), "");
}

TEST_F(FaultTest, WeightsOfKindsAndNotOfSamples) {
  expect_found(Fault::kKindsWeighAlike, {{{4}, 2, 3}, {{4}, 2, 1}, {{4}, 2, 1}});
  // Where the kinds take as many samples it makes no difference.
  EXPECT_EQ(found(Fault::kKindsWeighAlike, {{{4}, 2, 2}, {{4}, 2, 1}, {{4}, 2, 1}}, true), "");
}

TEST_F(FaultTest, MicroBatchesThatWeighAlikeWhateverTheirSizes) {
  expect_found(Fault::kSizesDoNotWeigh, kSizesDiffer);
  EXPECT_EQ(found(Fault::kSizesDoNotWeigh, kUnequal, true), "");  // their sizes are the same
}

TEST_F(FaultTest, SamplesThatTwoReplicasTake) {
  expect_found(Fault::kSamplesOverlap, kUnequal);
  expect_found(Fault::kSamplesOverlap, {{{4}, 1, 1}, {{4}, 1, 1}, {{4}, 1, 1}});
}

TEST_F(FaultTest, SumsThatDoNotReachTheOptimizer) {
  expect_found(Fault::kSumsLost, kUnequal);
  expect_found(Fault::kSumsLost, kSizesDiffer);
}

// Norm and update are done in pieces, by several threads at once and in another order: the same bits.
TEST(PiecesOfAnUpdate, MayBeDoneByAnybodyInAnyOrder) {
  const Layout layout(2, {{{2}, 2, 1}, {{1, 1}, 1, 2}}, RankOrder::kTpDpPp);
  for (const NumberType type : {NumberType::kFloat32, NumberType::kBFloat16}) {
    // The embedding and the head have two pieces each, the last one of another size.
    const FakeShape shape{.num_layers = 2, .hidden = 32, .vocab = 3'001, .type = type};
    TrainerOptions options;
    options.seed = 5;
    options.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 1, .total_steps = 3};
    options.shards.sharded = true;
    options.clip_gradient_norm = 0.1;
    options.gradients = type;
    const RunResult alone = train(layout, shape, 3, options);
    std::atomic<size_t> most_pieces = 0;
    options.for_each_piece = [&](size_t pieces, const std::function<void(size_t)>& work) {
      if (pieces > most_pieces) most_pieces = pieces;
      std::thread odd([&] {
        for (size_t piece = pieces; piece > 0; --piece)
          if (piece % 2 == 0) work(piece - 1);
      });
      for (size_t piece = pieces; piece > 0; --piece)
        if (piece % 2 == 1) work(piece - 1);
      odd.join();
    };
    const RunResult together = train(layout, shape, 3, options);
    EXPECT_GE(most_pieces, 4U);
    EXPECT_EQ(together.parameters, alone.parameters);
    for (size_t step = 0; step < alone.steps.size(); ++step)
      EXPECT_EQ(together.steps[step].gradient_norm, alone.steps[step].gradient_norm);
  }
}

}  // namespace
}  // namespace hdt::training::testing
