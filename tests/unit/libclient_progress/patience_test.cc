// patience_test.cc: when a thread that waits should sleep, by how long it was without its core.
#include "libclient/common/patience.h"

#include <gtest/gtest.h>

namespace hdt::client {
namespace {

constexpr int64_t kShort = Patience::kLostCoreNs - 1;
constexpr int64_t kLong = Patience::kLostCoreNs;

// Returns how often the thread comes back from `away_ns` before it should sleep; -1: always.
int turns_of(Patience& patience, int64_t away_ns) {
  patience.begin_wait();
  for (int turn = 1; turn <= 1'000; ++turn) {
    if (!patience.came_back(away_ns)) return turn;
  }
  return -1;
}

TEST(Patience, LooksOnWhereItComesBackSoon) {
  Patience patience;
  EXPECT_EQ(turns_of(patience, 0), -1);
  EXPECT_EQ(turns_of(patience, kShort), -1);
}

TEST(Patience, SleepsWhereOthersWantTheCore) {
  Patience patience;
  EXPECT_EQ(turns_of(patience, kLong), Patience::kLosses);
}

// That an engine needs its core some times for each call is as it should be.
TEST(Patience, ForgetsTheLossesOfEarlierWaits) {
  Patience patience;
  for (int wait = 0; wait < 100; ++wait) {
    patience.begin_wait();
    for (int turn = 1; turn < Patience::kLosses; ++turn) EXPECT_TRUE(patience.came_back(kLong));
    EXPECT_TRUE(patience.came_back(kShort));
  }
}

// Then without giving way at all, which would be a change of thread in vain; but not for ever.
TEST(Patience, SleepsAtOnceInTheWaitsAfterwards) {
  Patience patience;
  turns_of(patience, kLong);
  for (int wait = 0; wait < Patience::kWaitsWithout; ++wait) {
    patience.begin_wait();
    EXPECT_FALSE(patience.give_way()) << "wait " << wait;
    EXPECT_FALSE(patience.give_way()) << "a second look in wait " << wait;
  }
  EXPECT_EQ(turns_of(patience, kShort), -1);
  EXPECT_TRUE(patience.give_way());
}

}  // namespace
}  // namespace hdt::client
