// use_watch_test.cc: whether a NIC is used much, under steady, short and random use. Whatever the use is, the
// answer does not change often.
#include "transports/link/use_watch.h"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

namespace hdt::transport {
namespace {

constexpr int64_t kStepNs = 200 * kNsPerMs;

// Looks at a NIC in steps, and counts the changes of the answer.
class Watched {
 public:
  // The use stays so for that long.
  void use(double fraction, double seconds) {
    const int64_t until = now + static_cast<int64_t>(seconds * kNsPerSecond);
    while (now < until) {
      const int64_t since = now;
      now += std::min(kStepNs, until - now);
      const bool before = watch.much();
      watch.look(fraction, since, now);
      if (watch.much() == before) continue;
      if (changes > 0) shortest_ns = std::min(shortest_ns, now - changed_ns);
      changed_ns = now;
      ++changes;
    }
  }

  UseWatch watch;
  int64_t now = 5;
  int64_t changed_ns = 0;
  int64_t shortest_ns = INT64_MAX;
  int changes = 0;
};

TEST(UseWatch, MuchUseCountsAfterASecondAndLittleAfterTwo) {
  Watched nic;
  nic.use(0.5, 0.8);
  EXPECT_FALSE(nic.watch.much());
  nic.use(0.5, 0.2);
  EXPECT_TRUE(nic.watch.much());
  nic.use(0, 1.8);
  EXPECT_TRUE(nic.watch.much());
  nic.use(0, 0.2);
  EXPECT_FALSE(nic.watch.much());
}

TEST(UseWatch, UseBetweenTheBoundsLeavesTheAnswerAsItIs) {
  Watched nic;
  nic.use(0.15, 100);
  EXPECT_FALSE(nic.watch.much());
  nic.use(0.25, 2);
  nic.use(0.15, 100);
  EXPECT_TRUE(nic.watch.much());
}

// As of a job that sends at the end of each of its steps.
TEST(UseWatch, ShortBurstsDoNotCount) {
  Watched nic;
  for (int i = 0; i < 100; ++i) {
    nic.use(1, 0.8);
    nic.use(0.05, 0.4);
  }
  EXPECT_EQ(nic.changes, 0);
}

// Whoever was idle looks late, and sees at once what has long been so.
TEST(UseWatch, OneLookBackOverALongTimeIsEnough) {
  UseWatch watch;
  watch.look(0.5, 10 * kNsPerSecond, 20 * kNsPerSecond);
  EXPECT_TRUE(watch.much());
  watch.look(0, 20 * kNsPerSecond, 40 * kNsPerSecond);
  EXPECT_FALSE(watch.much());
}

// After changes in a row the answer comes late; after a long rest it comes in a second again.
TEST(UseWatch, PatienceGrowsWithEachChangeAndEndsWithRest) {
  Watched nic;
  for (int i = 0; i < 20; ++i) {
    nic.use(1, 10);
    nic.use(0, 10);
  }
  EXPECT_LE(nic.changes, 5);
  nic.use(0, 1'000);
  EXPECT_FALSE(nic.watch.much());
  nic.use(1, 1);
  EXPECT_TRUE(nic.watch.much());
}

TEST(UseWatch, AnyUseChangesTheAnswerSixTimesAndOnceMoreEachSixteenSeconds) {
  const uint64_t first_seed = std::random_device{}();
  std::cout << "seed " << first_seed << "\n";
  int all_changes = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    SCOPED_TRACE("seed " + std::to_string(first_seed + i));
    std::mt19937_64 random(first_seed + i);
    Watched nic;
    // Some loads are of short stretches, some of long ones, and one waits for the answer and then does the
    // opposite, which is the most that a load can do to it.
    const double longest = std::exponential_distribution<>(0.1)(random);
    const bool opposes = i % 3 == 0;
    while (nic.now < 600 * kNsPerSecond) {
      const double seconds = std::uniform_real_distribution<>(0.01, longest + 0.02)(random);
      const double fraction =
          opposes ? (nic.watch.much() ? 0.0 : 1.0) : std::uniform_real_distribution<>(0, 0.4)(random);
      nic.use(fraction, opposes ? 0.2 : seconds);
      const double passed = static_cast<double>(nic.now) / kNsPerSecond;
      ASSERT_LE(nic.changes, 6 + passed / 16);
    }
    EXPECT_GE(nic.shortest_ns, UseWatch::kLeastWaitNs);
    all_changes += nic.changes;
  }
  EXPECT_GT(all_changes, 300);
}

}  // namespace
}  // namespace hdt::transport
