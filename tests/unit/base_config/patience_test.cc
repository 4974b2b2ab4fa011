// patience_test.cc: when a thread that waits should sleep, by how often and how long it was without its core.
#include "base/patience.h"

#include <gtest/gtest.h>

namespace hdt {
namespace {

constexpr int kLosses = 5;
constexpr int64_t kShort = Patience::kLostCoreNs - 1;
constexpr int64_t kLoss = Patience::kLostCoreNs;

// Returns how often the thread comes back from `away_ns` before it should sleep; -1: always.
int turns_of(Patience& patience, int64_t away_ns) {
  patience.begin_wait();
  for (int turn = 1; turn <= 1'000; ++turn) {
    if (!patience.came_back(away_ns)) return turn;
  }
  return -1;
}

TEST(Patience, LooksOnWhereNobodyElseWantsTheCore) {
  Patience patience(kLosses);
  EXPECT_EQ(turns_of(patience, 0), -1);
  EXPECT_EQ(turns_of(patience, kShort), -1);
}

TEST(Patience, SleepsWhereItLosesTheCoreOften) {
  Patience patience(kLosses);
  EXPECT_EQ(turns_of(patience, kLoss), kLosses);
}

TEST(Patience, SleepsWhereItLosesTheCoreForLong) {
  Patience patience(kLosses);
  EXPECT_EQ(turns_of(patience, Patience::kLongAwayNs), 1);
  Patience other(kLosses);
  EXPECT_EQ(turns_of(other, Patience::kLongAwayNs / 2), 2);
}

// That what is waited for needs the core some times for each call is as it should be.
TEST(Patience, ForgetsTheLossesOfEarlierWaits) {
  Patience patience(kLosses);
  for (int wait = 0; wait < 1'000; ++wait) {
    patience.begin_wait();
    for (int turn = 1; turn < kLosses; ++turn) ASSERT_TRUE(patience.came_back(kLoss)) << "wait " << wait;
  }
}

// Then without giving way at all, which would be a change of thread in vain; but not for ever.
TEST(Patience, SleepsAtOnceInTheWaitsAfterwards) {
  Patience patience(kLosses);
  turns_of(patience, kLoss);
  for (int wait = 0; wait < Patience::kWaitsWithout; ++wait) {
    patience.begin_wait();
    EXPECT_FALSE(patience.give_way()) << "wait " << wait;
    EXPECT_FALSE(patience.give_way()) << "a second look in wait " << wait;
  }
  EXPECT_EQ(turns_of(patience, kShort), -1);
}

}  // namespace
}  // namespace hdt
