// recorder_test.cc: the ring of a rank's last operations: what is written can be read, at any time, by
// somebody who trusts nothing.
#include "ipc/recorder.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace hdt::ipc {
namespace {

class RecorderTest : public ::testing::Test {
 protected:
  std::vector<Operation> read() const {
    return ipc::read(copy_records(*recording_), TickScale(made_, TickMoment::now()));
  }
  static Call call(uint64_t count) {
    Call call;
    call.what = collectives::Collective::kAllReduce;
    call.type = collectives::DataType::kFloat32;
    call.count = count;
    return call;
  }
  const TickMoment made_ = TickMoment::now();
  std::unique_ptr<Recording> recording_ = std::make_unique<Recording>();
  Recorder recorder_{*recording_};
};

TEST_F(RecorderTest, ACallFromItsEntryToItsEnd) {
  const uint64_t number = recorder_.begin(call(8), 5);
  auto operation = read().at(0);
  EXPECT_EQ(operation.text, "allreduce of 8 float32, sum");
  EXPECT_EQ(operation.sequence, 5U);
  EXPECT_EQ(operation.bytes, 32U);
  EXPECT_GE(operation.entered_ns, made_.ns);
  EXPECT_EQ(operation.started_ns, 0);
  EXPECT_EQ(operation.ended_ns, 0);
  recorder_.start(number);
  recorder_.end(number, Code::kTimeout);
  operation = read().at(0);
  EXPECT_GE(operation.started_ns, operation.entered_ns);
  EXPECT_GE(operation.ended_ns, operation.started_ns);
  EXPECT_LE(operation.ended_ns, now_ns());
  EXPECT_EQ(operation.code, Code::kTimeout);
}

TEST_F(RecorderTest, AMessageMoves) {
  const uint64_t number = recorder_.begin(Recorded::kReceive, 70'000, 3, 1000);
  recorder_.move(number, 400);
  auto operation = read().at(0);
  EXPECT_EQ(operation.text, "recv of 1000 bytes from rank 70000");
  EXPECT_EQ(operation.moved, 400U);
  EXPECT_NE(operation.started_ns, 0);
  recorder_.move(number, 1000);
  recorder_.end(number);
  operation = read().at(0);
  EXPECT_EQ(operation.moved, 1000U);
  EXPECT_EQ(operation.code, Code::kSuccess);
}

TEST_F(RecorderTest, AMessageFromAnyRank) {
  recorder_.begin(Recorded::kReceive, kAnyRank, 0, 1000);
  EXPECT_EQ(read().at(0).text, "recv of 1000 bytes from any rank");
  EXPECT_TRUE(read().at(0).is_message());
  recorder_.begin(Recorded::kSend, kAnyRank, 0, 1000);
  EXPECT_EQ(read().size(), 1U) << "nobody sends to any rank";
}

TEST_F(RecorderTest, KeepsTheLast1024) {
  for (uint64_t i = 0; i < kRecords + 100; ++i) recorder_.end(recorder_.begin(call(i), i));
  const auto operations = read();
  ASSERT_EQ(operations.size(), 1024U);
  EXPECT_EQ(operations.front().sequence, 100U);
  EXPECT_EQ(operations.back().sequence, kRecords + 99);
}

TEST_F(RecorderTest, AnOperationThatOutlivesTheRingChangesNoOther) {
  const uint64_t old = recorder_.begin(call(1), 0);
  for (uint64_t i = 1; i <= kRecords; ++i) recorder_.begin(call(i), i);
  recorder_.end(old);
  for (const Operation& operation : read()) EXPECT_EQ(operation.ended_ns, 0) << operation.sequence;
}

TEST_F(RecorderTest, NonsenseIsLeftOut) {
  for (int i = 0; i < 3; ++i) recorder_.begin(call(1), static_cast<uint64_t>(i));
  recording_->records[0].what.store(UINT64_MAX);
  recording_->records[2].result.store(UINT64_MAX);
  const auto operations = read();
  ASSERT_EQ(operations.size(), 1U);
  EXPECT_EQ(operations[0].sequence, 1U);
  recording_->records[1].entered.store(UINT64_MAX);  // later than now
  const int64_t entered_ns = read().at(0).entered_ns;
  EXPECT_LE(entered_ns, now_ns());
  recording_->begun.store(UINT64_MAX);
  EXPECT_TRUE(read().empty());
}

// Every record says the same number twice: half of one and half of another would not.
TEST_F(RecorderTest, IsReadWhileItIsWritten) {
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (uint64_t i = 0; !over.load(std::memory_order_relaxed); ++i)
      recorder_.end(recorder_.begin(call(i % 1'000'000), i % 1'000'000));
  });
  size_t seen = 0;
  for (int round = 0; round < 200 || seen == 0; ++round) {
    for (const Operation& operation : read()) {
      ASSERT_EQ(operation.sequence * 4, operation.bytes);
      ++seen;
    }
  }
  over.store(true, std::memory_order_relaxed);
  writer.join();
  EXPECT_GT(seen, 0U);
}

}  // namespace
}  // namespace hdt::ipc
