// way_tuner_test.cc: the tuner tries both ways, keeps to the faster one, by collective and size, and follows
// what changes.
#include "libclient/intranode/way_tuner.h"

#include <gtest/gtest.h>

namespace hdt::client {
namespace {

using collectives::Collective;
using Way = WayTuner::Way;

constexpr uint64_t kBytes = 1 << 20;

// Makes `calls` calls that take `slots_ns` or `kernel_ns`; returns how many went through the kernel.
uint32_t run(WayTuner& tuner, Collective what, uint64_t bytes, uint32_t calls, int64_t slots_ns,
             int64_t kernel_ns) {
  uint32_t kernel = 0;
  for (uint32_t i = 0; i < calls; ++i) {
    const Way way = tuner.choose(what, bytes);
    kernel += way == Way::kKernel ? 1 : 0;
    tuner.took(what, bytes, way, way == Way::kKernel ? kernel_ns : slots_ns);
  }
  return kernel;
}

TEST(WayTuner, TriesBothInARowAndKeepsToTheFaster) {
  for (const bool kernel_is_faster : {false, true}) {
    WayTuner tuner;
    const int64_t slots = kernel_is_faster ? 200 : 100, kernel = 150;
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, WayTuner::kTrial, slots, kernel), 0U);
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, WayTuner::kTrial, slots, kernel), WayTuner::kTrial);
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, WayTuner::kSoonest, slots, kernel),
              kernel_is_faster ? WayTuner::kSoonest : 0U);
  }
}

// After a change the buffers lie in the wrong caches.
TEST(WayTuner, FirstCallsOfATrialDoNotDecide) {
  WayTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, WayTuner::kTrial, 200, 0);
  run(tuner, Collective::kAllReduce, kBytes, WayTuner::kTrial - 2, 0, 300);
  run(tuner, Collective::kAllReduce, kBytes, 2, 0, 100);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Way::kKernel);
}

TEST(WayTuner, OneSlowCallDoesNotDecide) {
  WayTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, 2 * WayTuner::kTrial, 200, 100);
  for (uint32_t i = 0; i < WayTuner::kSoonest; ++i) {
    const Way way = tuner.choose(Collective::kAllReduce, kBytes);
    EXPECT_EQ(way, Way::kKernel);
    tuner.took(Collective::kAllReduce, kBytes, way, i % 2 == 0 ? 1'000'000 : 100);
  }
}

TEST(WayTuner, KnowsEachCollectiveAndSizeByItself) {
  WayTuner tuner;
  constexpr uint32_t kCalls = 2 * WayTuner::kTrial + 1;
  run(tuner, Collective::kAllReduce, kBytes, kCalls, 200, 100);
  run(tuner, Collective::kBroadcast, kBytes, kCalls, 100, 200);
  run(tuner, Collective::kAllReduce, 4 * kBytes, kCalls, 100, 200);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Way::kKernel);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes + 4), Way::kKernel) << "of the same size class";
  EXPECT_EQ(tuner.choose(Collective::kBroadcast, kBytes), Way::kSlots);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, 4 * kBytes), Way::kSlots);
}

TEST(WayTuner, LeavesAWayThatBecomesSlow) {
  WayTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, 1000, 100, 200);
  // A trial may be under way when it becomes slow.
  EXPECT_LE(run(tuner, Collective::kAllReduce, kBytes, 2, 400, 200), 2U);
  run(tuner, Collective::kAllReduce, kBytes, WayTuner::kTrial, 400, 200);
  EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, WayTuner::kTrial, 400, 200), WayTuner::kTrial);
}

TEST(WayTuner, FindsOutThatTheOtherWayIsFasterNow) {
  WayTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, 1000, 100, 200);
  run(tuner, Collective::kAllReduce, kBytes, WayTuner::kLatest + WayTuner::kTrial, 100, 50);
  // All but a trial of the other.
  EXPECT_GE(run(tuner, Collective::kAllReduce, kBytes, WayTuner::kSoonest, 100, 50),
            WayTuner::kSoonest - WayTuner::kTrial);
}

TEST(WayTuner, SeldomChangesWhereThereIsNothingToGain) {
  for (const int64_t kernel : {98, 200}) {
    WayTuner tuner;
    constexpr uint32_t kCalls = 20'000;
    // 32, 64, ..., 512 calls apart, then 1,024.
    constexpr uint32_t kMost = WayTuner::kTrial * (6 + kCalls / WayTuner::kLatest);
    EXPECT_LE(run(tuner, Collective::kAllReduce, kBytes, kCalls, 100, kernel), kMost);
  }
}

TEST(WayTuner, AnySizeHasAPlace) {
  WayTuner tuner;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    run(tuner, Collective::kReduce, bytes, 2 * WayTuner::kTrial, 200, 100);
    EXPECT_EQ(tuner.choose(Collective::kReduce, bytes), Way::kKernel);
  }
}

}  // namespace
}  // namespace hdt::client
