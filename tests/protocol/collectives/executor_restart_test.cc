// executor_restart_test.cc: an executor that goes on where another one has ended, in the middle of a
// schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "collectives/executor.h"

namespace hdt::collectives {
namespace {

class CountingPort : public Port {
 public:
  bool write(int, uint32_t tag, const void*, size_t, Area, uint64_t, size_t) override {
    tags.push_back(tag);
    return copies;
  }
  std::vector<uint32_t> tags;
  bool copies = false;
};

// Node 0 of a ring allreduce of two nodes: send block 1, combine block 0, send it, receive block 1.
class GoingOn : public ::testing::Test {
 protected:
  static constexpr size_t kBlock = 10'000;  // several spare blocks
  GoingOn() : memory_(2 * kBlock), scratch_(2 * kBlock, 1) { std::iota(memory_.begin(), memory_.end(), 0); }

  // In place, as between two nodes.
  std::unique_ptr<Executor> executor(CountingPort& port) {
    return std::make_unique<Executor>(
        make_schedule(Algorithm::kRing, {Collective::kAllReduce, 2, 0, 0, {0, kBlock, 2 * kBlock}}),
        DataType::kInt32, ReduceOp::kSum,
        SlotMemory{reinterpret_cast<std::byte*>(memory_.data()), reinterpret_cast<std::byte*>(memory_.data()),
                   reinterpret_cast<std::byte*>(scratch_.data())},
        port, &progress_);
  }
  void expect_combined() const {
    for (size_t i = 0; i < kBlock; ++i) ASSERT_EQ(memory_[i], static_cast<int32_t>(i) + 1) << i;
  }

  std::vector<int32_t> memory_, scratch_;
  Progress progress_{};
};

TEST_F(GoingOn, WritesThatWereNotCompleteAreWrittenAgain) {
  CountingPort first;
  executor(first)->advance();
  EXPECT_THAT(first.tags, ::testing::ElementsAre(0));
  CountingPort second;
  executor(second)->advance();
  EXPECT_THAT(second.tags, ::testing::ElementsAre(0));
}

TEST_F(GoingOn, WhatWasCompleteIsNotDoneAgain) {
  CountingPort first;
  first.copies = true;
  auto predecessor = executor(first);
  predecessor->on_arrived(1, 0);
  predecessor->advance();
  EXPECT_THAT(first.tags, ::testing::ElementsAre(0, 1));
  expect_combined();
  CountingPort second;
  auto successor = executor(second);
  successor->on_arrived(1, 0);
  successor->advance();
  EXPECT_TRUE(second.tags.empty());
  expect_combined();
  EXPECT_FALSE(successor->done());
  successor->on_arrived(1, 1);
  successor->advance();
  EXPECT_TRUE(successor->done());
}

// It died in the middle of combining in place: block 0 was in place, block 1 in the spare memory and half
// copied.
TEST_F(GoingOn, ACombinationInPlaceIsContinuedBlockByBlock) {
  const size_t block = kSpareBytes / sizeof(int32_t);
  for (size_t i = 0; i < block; ++i) memory_[i] += 1;
  std::vector<int32_t> spare(block);
  for (size_t i = 0; i < block; ++i) spare[i] = static_cast<int32_t>(block + i) + 1;
  std::memcpy(progress_.spare, spare.data(), kSpareBytes);
  std::memset(&memory_[block], 0x55, kSpareBytes / 2);
  constexpr uint64_t kCombines = 1;  // the step
  progress_.overwriting.store((kCombines + 1) << 32 | 1 << 1 | 1);
  CountingPort port;
  port.copies = true;
  auto successor = executor(port);
  successor->on_arrived(1, 0);
  successor->advance();
  expect_combined();
  EXPECT_THAT(port.tags, ::testing::ElementsAre(0, 1));
}

TEST_F(GoingOn, ToAPeerThatIsBackOnlyWhatItLacksIsWrittenAgain) {
  CountingPort port;
  auto running = executor(port);
  running->on_arrived(1, 0);
  running->advance();
  EXPECT_THAT(port.tags, ::testing::ElementsAre(0, 1));
  running->write_again(1, [](uint32_t tag) { return tag == 0; });
  EXPECT_THAT(port.tags, ::testing::ElementsAre(0, 1, 1));
  running->on_arrived(1, 1);
  running->on_sent(2);
  running->advance();
  EXPECT_TRUE(running->done());
}

TEST_F(GoingOn, NonsenseIsTheEndOfTheSchedule) {
  progress_.complete.store(UINT64_MAX);
  progress_.overwriting.store(UINT64_MAX);
  CountingPort port;
  auto successor = executor(port);
  successor->advance();
  EXPECT_TRUE(successor->done());
  EXPECT_TRUE(port.tags.empty());
}

}  // namespace
}  // namespace hdt::collectives
