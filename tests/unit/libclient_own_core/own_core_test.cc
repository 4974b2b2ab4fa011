// own_core_test.cc: of two ranks on one processor the one with the higher number leaves it, where it may.
// This thread is one rank, and the other one is what its state says.
#include "libclient/common/own_core.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/shared_memory.h"

namespace hdt::client {
namespace {

class OwnCoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) processors_.push_back(cpu);
    }
    if (processors_.size() < 2) GTEST_SKIP() << "this process may use one processor only";
    auto memory = SharedMemory::create("test", layout_.total);
    ASSERT_TRUE(memory.is_ok()) << memory.status().to_string();
    memory_ = memory.take();
    access_.segment = ipc::Segment::format(memory_.data(), layout_, 7, "dp", 0);
    access_.local = 1;
  }
  void TearDown() override { ::sched_setaffinity(0, sizeof before_, &before_); }

  // This thread may use the first so many processors; it begins on the first of them.
  cpu_set_t allow(size_t count) {
    cpu_set_t set;
    for (const size_t step : {size_t{1}, count}) {
      CPU_ZERO(&set);
      for (size_t i = 0; i < step; ++i) CPU_SET(processors_[i], &set);
      EXPECT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    }
    return set;
  }
  void other_rank_is_on(uint32_t published) {
    access_.segment.rank_state(0).processor.store(published, std::memory_order_relaxed);
  }
  static void expect_allowed(const cpu_set_t& expected) {
    cpu_set_t now;
    ASSERT_EQ(::sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_TRUE(CPU_EQUAL(&now, &expected));
  }

  static constexpr int kWaits = 100;
  const ipc::Layout layout_{2, 1, 2};
  cpu_set_t before_{};
  std::vector<int> processors_;
  SharedMemory memory_;
  NodeAccess access_;
};

TEST_F(OwnCoreTest, ItLeavesAProcessorThatTheOtherRankIsOn) {
  const cpu_set_t both = allow(2);
  other_rank_is_on(static_cast<uint32_t>(processors_[0]) + 1);
  OwnCore core(access_);
  int waits = 0;
  while (core.quick_rounds() == 0) ASSERT_LT(++waits, kWaits);
  EXPECT_FALSE(core.shared());
  EXPECT_EQ(access_.rank_state().processor, static_cast<uint32_t>(processors_[1]) + 1);
  expect_allowed(both);
}

TEST_F(OwnCoreTest, ItDoesNotLookAtFullSpeedWhereItMustShare) {
  const cpu_set_t one = allow(1);
  other_rank_is_on(static_cast<uint32_t>(processors_[0]) + 1);
  OwnCore core(access_);
  for (int i = 0; i < kWaits; ++i) ASSERT_EQ(core.quick_rounds(), 0);
  EXPECT_TRUE(core.shared());
  expect_allowed(one);
}

TEST_F(OwnCoreTest, ItStaysWhereTheOtherRankIsElsewhereOrSaysNothingOfUse) {
  allow(1);
  OwnCore core(access_);
  for (const uint32_t published :
       {0U, static_cast<uint32_t>(processors_[1]) + 1, uint32_t{CPU_SETSIZE} + 1, UINT32_MAX}) {
    other_rank_is_on(published);
    for (int i = 0; i < kWaits; ++i) ASSERT_GT(core.quick_rounds(), 0) << published;
    EXPECT_FALSE(core.shared());
  }
  EXPECT_EQ(access_.rank_state().processor, static_cast<uint32_t>(processors_[0]) + 1);
}

TEST_F(OwnCoreTest, NothingIsLeftWhereNoOtherProcessorIsAllowed) {
  const cpu_set_t one = allow(1);
  cpu_set_t taken = one;
  EXPECT_FALSE(leave_processors(taken));
  expect_allowed(one);
  const cpu_set_t both = allow(2);
  EXPECT_TRUE(leave_processors(taken));
  expect_allowed(both);
  CPU_OR(&taken, &both, &both);
  EXPECT_FALSE(leave_processors(taken));
  expect_allowed(both);
}

}  // namespace
}  // namespace hdt::client
