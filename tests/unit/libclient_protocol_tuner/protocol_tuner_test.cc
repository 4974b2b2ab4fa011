// protocol_tuner_test.cc: the tuner tries both protocols, keeps to the faster one, by collective and size,
// and follows what changes.
#include "libclient/intranode/protocol_tuner.h"

#include <gtest/gtest.h>

namespace hdt::client {
namespace {

using collectives::Collective;
using Protocol = ProtocolTuner::Protocol;

constexpr uint64_t kBytes = 1 << 20;

// Makes `calls` calls that take `slots_ns` or `kernel_ns`; returns how many went through the kernel.
uint32_t run(ProtocolTuner& tuner, Collective what, uint64_t bytes, uint32_t calls, int64_t slots_ns,
             int64_t kernel_ns) {
  uint32_t kernel = 0;
  for (uint32_t i = 0; i < calls; ++i) {
    const Protocol protocol = tuner.choose(what, bytes);
    kernel += protocol == Protocol::kKernel ? 1 : 0;
    tuner.took(what, bytes, protocol, protocol == Protocol::kKernel ? kernel_ns : slots_ns);
  }
  return kernel;
}

TEST(ProtocolTuner, TriesBothInARowAndKeepsToTheFaster) {
  for (const bool kernel_is_faster : {false, true}) {
    ProtocolTuner tuner;
    const int64_t slots = kernel_is_faster ? 200 : 100, kernel = 150;
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kTrial, slots, kernel), 0U);
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kTrial, slots, kernel),
              ProtocolTuner::kTrial);
    EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kSoonest, slots, kernel),
              kernel_is_faster ? ProtocolTuner::kSoonest : 0U);
  }
}

// After a change the buffers lie in the wrong caches.
TEST(ProtocolTuner, FirstCallsOfATrialDoNotDecide) {
  ProtocolTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kTrial, 200, 0);
  run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kTrial - 2, 0, 300);
  run(tuner, Collective::kAllReduce, kBytes, 2, 0, 100);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Protocol::kKernel);
}

TEST(ProtocolTuner, OneSlowCallDoesNotDecide) {
  ProtocolTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, 2 * ProtocolTuner::kTrial, 200, 100);
  for (uint32_t i = 0; i < ProtocolTuner::kSoonest; ++i) {
    const Protocol protocol = tuner.choose(Collective::kAllReduce, kBytes);
    EXPECT_EQ(protocol, Protocol::kKernel);
    tuner.took(Collective::kAllReduce, kBytes, protocol, i % 2 == 0 ? 1'000'000 : 100);
  }
}

TEST(ProtocolTuner, KnowsEachCollectiveAndSizeByItself) {
  ProtocolTuner tuner;
  constexpr uint32_t kCalls = 2 * ProtocolTuner::kTrial + 1;
  run(tuner, Collective::kAllReduce, kBytes, kCalls, 200, 100);
  run(tuner, Collective::kBroadcast, kBytes, kCalls, 100, 200);
  run(tuner, Collective::kAllReduce, 4 * kBytes, kCalls, 100, 200);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes), Protocol::kKernel);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, kBytes + 4), Protocol::kKernel) << "of the same size class";
  EXPECT_EQ(tuner.choose(Collective::kBroadcast, kBytes), Protocol::kSlots);
  EXPECT_EQ(tuner.choose(Collective::kAllReduce, 4 * kBytes), Protocol::kSlots);
}

TEST(ProtocolTuner, LeavesAWayThatBecomesSlow) {
  ProtocolTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, 1000, 100, 200);
  // A trial may be under way when it becomes slow.
  EXPECT_LE(run(tuner, Collective::kAllReduce, kBytes, 2, 400, 200), 2U);
  run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kTrial, 400, 200);
  EXPECT_EQ(run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kTrial, 400, 200),
            ProtocolTuner::kTrial);
}

TEST(ProtocolTuner, FindsOutThatTheOtherWayIsFasterNow) {
  ProtocolTuner tuner;
  run(tuner, Collective::kAllReduce, kBytes, 1000, 100, 200);
  run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kLatest + ProtocolTuner::kTrial, 100, 50);
  // All but a trial of the other.
  EXPECT_GE(run(tuner, Collective::kAllReduce, kBytes, ProtocolTuner::kSoonest, 100, 50),
            ProtocolTuner::kSoonest - ProtocolTuner::kTrial);
}

TEST(ProtocolTuner, SeldomChangesWhereThereIsNothingToGain) {
  for (const int64_t kernel : {98, 200}) {
    ProtocolTuner tuner;
    constexpr uint32_t kCalls = 20'000;
    // 32, 64, ..., 512 calls apart, then 1,024.
    constexpr uint32_t kMost = ProtocolTuner::kTrial * (6 + kCalls / ProtocolTuner::kLatest);
    EXPECT_LE(run(tuner, Collective::kAllReduce, kBytes, kCalls, 100, kernel), kMost);
  }
}

TEST(ProtocolTuner, AnySizeHasAPlace) {
  ProtocolTuner tuner;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    run(tuner, Collective::kReduce, bytes, 2 * ProtocolTuner::kTrial, 200, 100);
    EXPECT_EQ(tuner.choose(Collective::kReduce, bytes), Protocol::kKernel);
  }
}

}  // namespace
}  // namespace hdt::client
