// way_tuner_test.cc: the tuner tries both ways, keeps to the faster one, by collective and size, and changes its mind.
#include "libclient/way_tuner.h"

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

TEST(WayTuner, TriesBothAndKeepsToTheFaster) {
  for (const bool kernel_is_faster : {false, true}) {
    WayTuner tuner;
    const int64_t slots = kernel_is_faster ? 200 : 100, kernel = 150;
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, 2 * WayTuner::kTrials, slots, kernel),
              WayTuner::kTrials);
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, 100, slots, kernel), kernel_is_faster ? 100U : 0U);
  }
}

TEST(WayTuner, OneSlowCallDoesNotDecide) {
  WayTuner tuner;
  tuner.took(Collective::kAllReduce, kBytes, Way::kKernel, 1'000'000);
  EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, 2 * WayTuner::kTrials - 1, 200, 100),
            WayTuner::kTrials - 1);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Way::kKernel);
}

TEST(WayTuner, KnowsEachCollectiveAndSizeByItself) {
  WayTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, 100, 200, 100);
  run(tuner, Collective::kBroadcast, kBytes, 100, 100, 200);
  run(tuner, Collective::kAllReduce, 4 * kBytes, 100, 100, 200);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Way::kKernel);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes + 4), Way::kKernel) << "of the same size class";
  EXPECT_EQ(tuner.choose(Collective::kBroadcast, kBytes), Way::kSlots);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, 4 * kBytes), Way::kSlots);
}

TEST(WayTuner, FindsOutThatTheOtherWayIsFasterNow) {
  WayTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, WayTuner::kCalls, 100, 200);
  ASSERT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Way::kSlots);
  run(tuner, Collective::kAllReduce, kBytes, 2 * WayTuner::kTrials + 1, 200, 100);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Way::kKernel);
}

TEST(WayTuner, AnySizeHasAPlace) {
  WayTuner tuner;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    run(tuner, Collective::kReduce, bytes, 100, 200, 100);
    EXPECT_EQ(tuner.choose(Collective::kReduce, bytes), Way::kKernel);
  }
}

}  // namespace
}  // namespace hdt::client
