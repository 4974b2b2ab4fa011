// executor_events_test.cc: one executor and what it does at each event: nothing before advance(), nothing
// done before its writes are sent, arrivals before the start, strange events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/executor.h"

namespace hdt::collectives {
namespace {

struct Written {
  int peer;
  uint32_t tag;
  size_t bytes;
  Area to;
  uint64_t offset;
  size_t step;
  bool operator==(const Written&) const = default;
};

class RecordingPort : public Port {
 public:
  bool write(int peer, uint32_t tag, const void* /*data*/, size_t bytes, Area to, uint64_t offset,
             size_t step) override {
    writes.push_back({peer, tag, bytes, to, offset, step});
    return copies;
  }
  bool copies = false;
  std::vector<Written> writes;
};

// Node 0 of a ring allreduce of two nodes, two elements each: send block 1, combine block 0, send it, receive
// block 1.
class TwoNodeAllReduce : public ::testing::Test {
 protected:
  std::vector<int32_t> input_{1, 2, 3, 4};
  std::vector<int32_t> output_ = std::vector<int32_t>(4, -1);
  std::vector<int32_t> scratch_ = std::vector<int32_t>(4, -1);
  RecordingPort port_;
  Executor executor_{
      make_schedule(Algorithm::kRing, {Collective::kAllReduce, 2, 0, 0, {0, 2, 4}}), DataType::kInt32,
      ReduceOp::kSum,
      SlotMemory{reinterpret_cast<std::byte*>(input_.data()), reinterpret_cast<std::byte*>(output_.data()),
                 reinterpret_cast<std::byte*>(scratch_.data())},
      port_};
  const Written contribution_{1, 0, 8, Area::kScratch, 8, 0};
  const Written result_{1, 1, 8, Area::kOutput, 0, 2};
};

TEST_F(TwoNodeAllReduce, DoesNothingBeforeAdvance) {
  EXPECT_FALSE(executor_.done());
  executor_.on_arrived(1, 0);
  EXPECT_TRUE(port_.writes.empty());
  EXPECT_EQ(output_[0], -1);
}

TEST_F(TwoNodeAllReduce, RunsStepByStep) {
  executor_.advance();
  EXPECT_THAT(port_.writes, ::testing::ElementsAre(contribution_));
  scratch_ = {10, 20, -1, -1};
  executor_.on_arrived(1, 0);
  executor_.advance();
  EXPECT_THAT(port_.writes, ::testing::ElementsAre(contribution_, result_));
  EXPECT_THAT(output_, ::testing::ElementsAre(11, 22, -1, -1));
  output_[2] = 33;
  output_[3] = 44;
  executor_.on_arrived(1, 1);
  executor_.on_sent(0);
  executor_.on_sent(2);
  executor_.advance();
  EXPECT_TRUE(executor_.done());
}

TEST_F(TwoNodeAllReduce, IsNotDoneBeforeEveryWriteIsSent) {
  executor_.on_arrived(1, 0);
  executor_.on_arrived(1, 1);
  executor_.advance();
  executor_.on_sent(2);
  executor_.advance();
  EXPECT_FALSE(executor_.done());
  executor_.on_sent(0);
  executor_.advance();
  EXPECT_TRUE(executor_.done());
}

TEST_F(TwoNodeAllReduce, TakesArrivalsBeforeItsStartAndOutOfOrder) {
  scratch_ = {10, 20, -1, -1};
  executor_.on_arrived(1, 1);
  executor_.advance();
  EXPECT_THAT(port_.writes, ::testing::ElementsAre(contribution_)) << "the contribution has not come yet";
  executor_.on_arrived(1, 0);
  executor_.advance();
  EXPECT_THAT(port_.writes, ::testing::ElementsAre(contribution_, result_));
}

TEST_F(TwoNodeAllReduce, IgnoresEventsItsScheduleDoesNotHave) {
  executor_.on_arrived(1, 2);
  executor_.on_arrived(1, UINT32_MAX);
  executor_.on_arrived(7, 0);
  executor_.on_arrived(-1, 0);
  executor_.on_sent(0);
  executor_.on_sent(SIZE_MAX);
  executor_.advance();
  EXPECT_THAT(port_.writes, ::testing::ElementsAre(contribution_));
  executor_.on_sent(1);  // a recv-reduce: not for its owner to complete
  executor_.on_sent(3);
  executor_.advance();
  EXPECT_EQ(output_[0], -1);
  EXPECT_FALSE(executor_.done());
}

// A send whose source the next step overwrites: that step waits for on_sent.
class OverwritingSchedule : public Schedule {
 public:
  std::optional<Step> step(size_t index) const override {
    if (index == 0) return Step{StepKind::kSend, 1, Area::kOutput, Area::kOutput, 0, 2, 0};
    if (index == 1) return Step{StepKind::kCopy, -1, Area::kInput, Area::kOutput, 0, 2, 0};
    return std::nullopt;
  }
  uint64_t scratch_length() const override { return 0; }
};

TEST(Executor, KeepsDataUntilItIsSent) {
  std::vector<int32_t> input{1, 2};
  std::vector<int32_t> output{3, 4};
  RecordingPort port;
  Executor executor(std::make_unique<OverwritingSchedule>(), DataType::kInt32, ReduceOp::kSum,
                    SlotMemory{reinterpret_cast<std::byte*>(input.data()),
                               reinterpret_cast<std::byte*>(output.data()), nullptr},
                    port);
  executor.advance();
  executor.advance();
  EXPECT_THAT(output, ::testing::ElementsAre(3, 4));
  executor.on_sent(0);
  executor.advance();
  EXPECT_THAT(output, ::testing::ElementsAre(1, 2));
  EXPECT_TRUE(executor.done());
}

// Three nodes, two rounds: the second signal tells what the first arrival told, so it must not go before it.
TEST(Executor, PassesABarriersSignalOnOnlyAfterTheOneBefore) {
  RecordingPort port;
  Executor executor(make_schedule(Algorithm::kHalvingDoubling, {Collective::kBarrier, 3, 0, 0, {0, 0, 0, 0}}),
                    DataType::kFloat32, ReduceOp::kSum, SlotMemory{}, port);
  executor.advance();
  executor.on_sent(0);
  executor.on_arrived(1, 0);  // the second round's
  executor.advance();
  ASSERT_EQ(port.writes.size(), 1u);
  EXPECT_EQ(port.writes[0].peer, 1);
  EXPECT_EQ(port.writes[0].bytes, 0u);
  executor.on_arrived(2, 0);
  executor.advance();
  ASSERT_EQ(port.writes.size(), 2u);
  EXPECT_EQ(port.writes[1].peer, 2);
  EXPECT_FALSE(executor.done());
  executor.on_sent(2);
  executor.advance();
  EXPECT_TRUE(executor.done());
}

TEST(Executor, IsDoneAtOnceWhereThereIsNothingToDo) {
  RecordingPort port;
  Executor executor(make_schedule(Algorithm::kRing, {Collective::kAllReduce, 3, 1, 0, {0, 0, 0, 0}}),
                    DataType::kFloat32, ReduceOp::kSum, SlotMemory{}, port);
  executor.advance();
  EXPECT_TRUE(executor.done());
  EXPECT_TRUE(port.writes.empty());
}

}  // namespace
}  // namespace hdt::collectives
