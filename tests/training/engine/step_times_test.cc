// step_times_test.cc: the shares of the time, the slowest rank, and what the trainer measures.
#include "training/engine/step_times.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/training/engine/training_run.h"
#include "tests/training/percentages.h"

namespace hdt::training::testing {
namespace {

double sum_of(const TimeShares& shares) {
  return shares.compute + shares.pp + shares.dp + shares.optimizer + shares.other;
}

TEST(StepTimes, SharesAreThoseOfAllRanksAndAddUp) {
  const std::vector<StepTimes> ranks = {{6, 1, 1, 1, 10}, {2, 3, 2, 1, 10}};
  const TimeShares shares = shares_of(ranks).value();
  EXPECT_DOUBLE_EQ(shares.compute, 0.4);
  EXPECT_DOUBLE_EQ(shares.pp, 0.2);
  EXPECT_DOUBLE_EQ(shares.dp, 0.15);
  EXPECT_DOUBLE_EQ(shares.optimizer, 0.1);
  EXPECT_DOUBLE_EQ(shares.other, 0.15);
  EXPECT_EQ(to_text(shares), "compute 40 % pp 20 % dp 15 % optimizer 10 % other 15 %");
  EXPECT_EQ(shares_of({}), std::nullopt);
  EXPECT_EQ(shares_of(std::vector<StepTimes>(3)), std::nullopt);
}

// Rounding each on its own would make 99 or 101 of many.
TEST(StepTimes, PercentagesAddUpWhateverTheTimes) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0, 1);
  for (int i = 0; i < 2000; ++i) {
    StepTimes times = {seconds(random), seconds(random), seconds(random), seconds(random), 0};
    times.total = times.compute + times.pp + times.dp + times.optimizer + seconds(random);
    const TimeShares shares = shares_of({{times}}).value();
    EXPECT_NEAR(sum_of(shares), 1, 1e-12);
    EXPECT_EQ(sum_of_percentages(to_text(shares)), 100) << to_text(shares);
  }
}

// The parts may exceed the total by what the clock rounds.
TEST(StepTimes, TheRestIsNotNegative) {
  const TimeShares shares = shares_of({{{0.6, 0.5, 0, 0, 1}}}).value();
  EXPECT_EQ(shares.other, 0);
  EXPECT_NEAR(sum_of(shares), 1, 1e-12);
}

TEST(StepTimes, TheSlowestRankIsComparedWithTheOthers) {
  const SlowestRank slowest =
      slowest_rank(std::vector<StepTimes>{{.compute = 1}, {.compute = 6}, {.compute = 3}}).value();
  EXPECT_EQ(slowest.rank, 1);
  EXPECT_DOUBLE_EQ(slowest.factor, 3);
  EXPECT_TRUE(slowest.is_clear());
  EXPECT_FALSE(slowest_rank(std::vector<StepTimes>{{.compute = 1}, {.compute = 1.1}})->is_clear());
  EXPECT_FALSE(slowest_rank(std::vector<StepTimes>{{.compute = 1}}));
  EXPECT_FALSE(slowest_rank(std::vector<StepTimes>{{.compute = 1}, {.compute = 0}}));
}

TEST(TimesOfRanks, ForgetTheFirstStepAndKeepTheOthers) {
  TimesOfRanks all;
  EXPECT_TRUE(all.ranks().empty());
  all.add(std::vector<StepTimes>{{.compute = 9, .total = 9}});
  EXPECT_EQ(all.ranks()[0].compute, 9);
  for (int i = 0; i < 3; ++i) all.add(std::vector<StepTimes>{{.compute = 1, .total = 2}});
  EXPECT_EQ(all.ranks()[0].compute, 3);
  EXPECT_EQ(all.ranks()[0].total, 6);
}

TEST(TimesOfRanks, OlderStepsCountLess) {
  TimesOfRanks recent(std::chrono::seconds(1));
  recent.add(std::vector<StepTimes>{{.compute = 5, .total = 5}});
  recent.add(std::vector<StepTimes>{{.compute = 4, .total = 4}});
  recent.add(std::vector<StepTimes>{{.compute = 1, .total = 1}});
  EXPECT_DOUBLE_EQ(recent.ranks()[0].compute, 3);
}

// Every rank knows the times of all; the parts are within the total. No length is expected.
TEST(StepTimes, AreMeasuredByTheTrainerOnEveryRank) {
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  std::vector<std::vector<StepTimes>> of_ranks(layout.world_size());
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(FakeShape(), layout, rank);
    const auto messenger = world.messenger(rank);
    TrainerOptions options;
    options.shards.sharded = true;
    auto trainer = make_trainer(layout, FakeShape().vocab, chunks.computes(), *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int64_t step = 0; step < 3; ++step) {
      // Sums of the caller's travel beside the times.
      std::array<double, 2> sums = {1, static_cast<double>(rank)};
      const Result<StepResult> done = trainer.value()->step(step, sums);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      EXPECT_EQ(sums[0], 4);
      EXPECT_EQ(sums[1], 6);
      of_ranks[rank] = done.value().times;
    }
    ASSERT_TRUE(trainer.value()->settle().is_ok());
  });
  for (const std::vector<StepTimes>& ranks : of_ranks) {
    ASSERT_EQ(ranks.size(), 4U);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank].values(), of_ranks[0][rank].values()) << rank;
      const StepTimes& times = ranks[rank];
      for (const double part : {times.compute, times.pp, times.dp, times.optimizer})
        EXPECT_GT(part, 0) << rank;
      EXPECT_LE(times.compute + times.pp + times.dp + times.optimizer, times.total * 1.000001) << rank;
    }
  }
}

}  // namespace
}  // namespace hdt::training::testing
