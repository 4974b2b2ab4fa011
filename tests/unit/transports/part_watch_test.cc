// part_watch_test.cc: the part of a NIC on which a class can count, under steady, short and random use by
// others. Whatever happens, it does not change often.
#include "transports/link/part_watch.h"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

namespace hdt::transport {
namespace {

constexpr int64_t kStepNs = 200 * kNsPerMs;

// Looks at a NIC in steps, and counts the changes.
class Watched {
 public:
  // Others leave that part of it for that long.
  void leave(double part, double seconds) {
    const int64_t until = now + static_cast<int64_t>(seconds * kNsPerSecond);
    while (now < until) {
      const int64_t since = now;
      now += std::min(kStepNs, until - now);
      const double before = watch.part();
      watch.look(part, since, now);
      if (watch.part() == before) continue;
      if (changes > 0) shortest_ns = std::min(shortest_ns, now - changed_ns);
      changed_ns = now;
      ++changes;
    }
  }

  PartWatch watch;
  int64_t now = 5;
  int64_t changed_ns = 0;
  int64_t shortest_ns = INT64_MAX;
  int changes = 0;
};

TEST(PartWatch, LessCountsAfterASecondAndMoreAfterTwo) {
  Watched nic;
  nic.leave(0.5, 0.8);
  EXPECT_EQ(nic.watch.part(), 1);
  nic.leave(0.5, 0.2);
  EXPECT_EQ(nic.watch.part(), 0.5);
  nic.leave(1, 1.8);
  EXPECT_EQ(nic.watch.part(), 0.5);
  nic.leave(1, 0.2);
  EXPECT_EQ(nic.watch.part(), 1);
}

TEST(PartWatch, WhatIsNearLeavesItAsItIs) {
  Watched nic;
  nic.leave(0.92, 100);
  EXPECT_EQ(nic.watch.part(), 1);
  nic.leave(0.6, 2);
  EXPECT_EQ(nic.watch.part(), 0.625);
  for (int i = 0; i < 20; ++i) nic.leave(i % 2 == 0 ? 0.55 : 0.7, 10);
  EXPECT_EQ(nic.watch.part(), 0.625);
}

TEST(PartWatch, TakesTheMeanOfTheTimeInSteps) {
  Watched nic;
  nic.leave(0.2, 0.4);
  nic.leave(0.7, 0.6);
  EXPECT_EQ(nic.watch.part(), 0.5);
  nic.leave(0, 2);
  EXPECT_EQ(nic.watch.part(), PartWatch::kStep);
}

// As of another job that sends at the end of each of its steps.
TEST(PartWatch, ShortBurstsDoNotCount) {
  Watched nic;
  for (int i = 0; i < 100; ++i) {
    nic.leave(0, 0.8);
    nic.leave(1, 0.4);
  }
  EXPECT_EQ(nic.changes, 0);
}

// Whoever was idle looks late, and sees at once what has long been so.
TEST(PartWatch, OneLookBackOverALongTimeIsEnough) {
  PartWatch watch;
  watch.look(0.5, 10 * kNsPerSecond, 20 * kNsPerSecond);
  EXPECT_EQ(watch.part(), 0.5);
  watch.look(1, 20 * kNsPerSecond, 40 * kNsPerSecond);
  EXPECT_EQ(watch.part(), 1);
}

// After changes in a row the next one comes late; after a long rest it comes in a second again.
TEST(PartWatch, PatienceGrowsWithEachChangeAndEndsWithRest) {
  Watched nic;
  for (int i = 0; i < 20; ++i) {
    nic.leave(0.3, 10);
    nic.leave(1, 10);
  }
  EXPECT_LE(nic.changes, 10);
  nic.leave(1, 1'000);
  EXPECT_EQ(nic.watch.part(), 1);
  nic.leave(0.5, 1);
  EXPECT_EQ(nic.watch.part(), 0.5);
}

TEST(PartWatch, WhateverHappensThereAreSixChangesAndOneMoreInSixteenSeconds) {
  const uint64_t first_seed = std::random_device{}();
  std::cout << "seed " << first_seed << "\n";
  int all_changes = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    SCOPED_TRACE("seed " + std::to_string(first_seed + i));
    std::mt19937_64 random(first_seed + i);
    Watched nic;
    // Some loads are of short stretches, some of long ones, and one waits for the change and then does the
    // opposite, which is the most that a load can do to it.
    const double longest = std::exponential_distribution<>(0.1)(random);
    const bool opposes = i % 3 == 0;
    while (nic.now < 600 * kNsPerSecond) {
      const double seconds = std::uniform_real_distribution<>(0.01, longest + 0.02)(random);
      const double left =
          opposes ? (nic.watch.part() < 0.5 ? 1.0 : 0.0) : std::uniform_real_distribution<>(0, 1)(random);
      nic.leave(left, opposes ? 0.2 : seconds);
      const double passed = static_cast<double>(nic.now) / kNsPerSecond;
      ASSERT_LE(nic.changes, 6 + passed / 16);
    }
    EXPECT_GE(nic.shortest_ns, PartWatch::kLeastWaitNs);
    all_changes += nic.changes;
  }
  EXPECT_GT(all_changes, 300);
}

}  // namespace
}  // namespace hdt::transport
