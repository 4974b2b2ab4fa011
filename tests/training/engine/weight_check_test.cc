// weight_check_test.cc: replicas that hold one model, and one bit that differs, in any tensor of any rank.
#include "training/engine/weight_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/saboteur.h"
#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

// A bit of a tensor that a rank has otherwise than it should.
struct Flip {
  int rank = -1;
  int unit = 0;
  size_t tensor = 0;
  size_t element = 0;
  int bit = 0;
};

void flip(const Flip& flip, UnitMemory& memory) {
  size_t at = flip.element;
  for (size_t i = 0; i < flip.tensor; ++i) at += memory.tensors(flip.unit)[i].elements();
  float& value = memory.parameters(flip.unit).as<float>()[at];
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits ^= uint32_t{1} << flip.bit;
  std::memcpy(&value, &bits, sizeof bits);
}

// The result on each rank after `steps` steps and the flip.
std::vector<std::optional<WeightDifference>> check(const Layout& layout, int steps, const Flip& change,
                                                   const ShardOptions& shards = {},
                                                   const Sabotage& sabotage = {}) {
  ThreadWorld world(layout);
  std::vector<std::optional<WeightDifference>> found(layout.world_size());
  TrainerOptions options;
  options.learning_rate = {.peak = 0.02, .minimum = 0.02, .warmup_steps = 0, .total_steps = 10};
  options.shards = shards;
  options.schedule = ScheduleKind::kInterleaved;  // 1F1B where a stage has one chunk
  run_ranks(layout.world_size(), [&](int rank) {
    FakeShape shape;
    shape.tied = layout.has_tied_unit();
    const FakeChunks chunks(shape, layout, rank);
    auto messenger = world.messenger(rank);
    if (sabotage.messenger) messenger = sabotage.messenger(rank, std::move(messenger));
    auto trainer = make_trainer(layout, shape.vocab, chunks.computes(), *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int step = 0; step < steps; ++step) ASSERT_TRUE(trainer.value()->step(step).is_ok());
    ASSERT_TRUE(trainer.value()->settle().is_ok());
    UnitMemory& memory = trainer.value()->memory();
    if (rank == change.rank) flip(change, memory);
    Result<std::optional<WeightDifference>> result = find_weight_difference(layout, memory, *messenger);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    found[rank] = result.take();
  });
  return found;
}

// The table's, and one with two chunks beside one.
std::vector<NamedLayout> checked_layouts() {
  std::vector<NamedLayout> layouts = layout_table();
  layouts.push_back(
      {"two chunks beside one", Layout(4, {{{1, 1, 1, 1}, 2, 4, 2}, {{3, 1}, 2, 2}}, RankOrder::kTpDpPp)});
  return layouts;
}

TEST(WeightCheck, ReplicasOfOneModelAreTheSame) {
  for (const NamedLayout& named : checked_layouts()) {
    SCOPED_TRACE(named.name);
    for (const auto& result : check(named.layout, 2, {})) EXPECT_FALSE(result.has_value());
  }
}

TEST(WeightCheck, OneBitIsFoundWithItsTensorAndRank) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const NamedLayout& named : checked_layouts()) {
    const Layout& layout = named.layout;
    if (layout.num_replicas() < 2) continue;
    Flip change;
    change.rank = static_cast<int>(random() % layout.world_size());
    const std::vector<UnitRange> ranges = layout.ranges_of(change.rank);
    const UnitRange units = ranges[random() % ranges.size()];
    change.unit = units.first + static_cast<int>(random() % units.size());
    const std::vector<TensorInfo> tensors = FakeCompute(FakeShape(), units).tensors(change.unit);
    change.tensor = random() % tensors.size();
    change.element = random() % tensors[change.tensor].elements();
    change.bit = static_cast<int>(random() % 32);
    SCOPED_TRACE(fmt::format("{}: rank {}, unit {}, tensor {}", named.name, change.rank, change.unit,
                             tensors[change.tensor].name));
    // A rank of replica 0 is what the others are compared with: they differ, and the first one is named.
    const int first = layout.owner_of(change.unit, 0);
    int other = change.rank;
    if (change.rank == first) {
      other = layout.owner_of(change.unit, 1);
      for (int replica = 2; replica < layout.num_replicas(); ++replica)
        other = std::min(other, layout.owner_of(change.unit, replica));
    }
    for (const auto& result : check(layout, 1, change)) {
      ASSERT_TRUE(result.has_value());
      EXPECT_EQ(result->tensor, tensors[change.tensor].name);
      EXPECT_EQ(result->rank, other);
      EXPECT_EQ(result->other, first);
    }
  }
}

// The matrix of embedding and head is compared between the stages of a replica, too.
TEST(WeightCheck, ATiedMatrixThatDiffersOnTheLastStageIsFound) {
  const Layout layout = Layout(4, {{{3, 1}, 2, 2}}, RankOrder::kTpPpDp).with_tied_unit();
  for (const auto& result : check(layout, 2, {})) EXPECT_FALSE(result.has_value());
  Flip change;
  change.rank = 1;
  change.unit = kTiedUnit;
  change.element = 5;
  change.bit = 3;
  for (const auto& result : check(layout, 1, change)) {
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->tensor, "embedding");
    EXPECT_EQ(result->rank, 1);
    EXPECT_EQ(result->other, 0);
  }
}

// An allgather of sharded states that leaves one rank with what it had.
TEST(WeightCheck, AStaleShardIsFound) {
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  const ShardOptions sharded{true, {}};
  for (const auto& result : check(layout, 1, {}, sharded, sabotage(Fault::kNone, layout)))
    EXPECT_FALSE(result.has_value());
  for (const auto& result : check(layout, 1, {}, sharded, sabotage(Fault::kStaleParameters, layout)))
    EXPECT_TRUE(result.has_value());
}

}  // namespace
}  // namespace hdt::training::testing
