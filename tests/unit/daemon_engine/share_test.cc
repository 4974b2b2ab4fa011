// share_test.cc: a process learns the number of its memory when the engine that may see a call with it knows
// the memory, and the control thread waits for no engine meanwhile.
#include <gtest/gtest.h>

#include "tests/unit/daemon_engine/sharing.h"

namespace hdt::daemon {
namespace {

TEST_F(SharingProcess, IsAnsweredWhenTheEngineOfItsGroupKnowsTheMemory) {
  close_gate(kEngineOfGroup);
  share(5);  // returns, although the engine stands still
  EXPECT_FALSE(daemon_.mailbox.run());
  EXPECT_FALSE(is_answered());
  open_gate(kEngineOfGroup);
  ASSERT_TRUE(run_mailbox());
  const ipc::MemoryAnswer told = answer();
  EXPECT_EQ(told.request, 5U);
  EXPECT_EQ(told.code, Code::kSuccess);
  EXPECT_NE(told.memory, 0U);
  EXPECT_TRUE(daemon_.sessions->find(kSession)->memories.contains(told.memory));
}

// An engine that opens a device, or hangs, keeps only the processes with groups of its own waiting.
TEST_F(SharingProcess, IsAnsweredWhateverAnotherEngineDoes) {
  close_gate(1 - kEngineOfGroup);
  share(5);
  ASSERT_TRUE(run_mailbox());
  EXPECT_EQ(answer().code, Code::kSuccess);
}

TEST_F(SharingProcess, MayEndBeforeItIsAnswered) {
  close_gate(kEngineOfGroup);
  share(5);
  const auto& memories = daemon_.sessions->find(kSession)->memories;
  ASSERT_EQ(memories.size(), 1U);
  const std::weak_ptr<SharedMemory> held = memories.begin()->second.memory;
  process_.reset();
  handle();
  EXPECT_EQ(daemon_.sessions->find(kSession), nullptr);
  open_gate(kEngineOfGroup);
  ASSERT_TRUE(run_mailbox());
  // The engines hear of the session's end behind the memory, and let go of it.
  pass_engines();
  EXPECT_TRUE(held.expired());
}

// Its seat is given up while the answer is under way, by another thread of the process.
TEST_F(SharingProcess, IsAnsweredAlthoughTheSeatHasGone) {
  close_gate(kEngineOfGroup);
  share(5);
  ClientSession* const client = daemon_.sessions->find(kSession);
  daemon_.sessions->end_seat(*client, kHandle);
  EXPECT_TRUE(client->memories.empty());
  open_gate(kEngineOfGroup);
  ASSERT_TRUE(run_mailbox());
  EXPECT_EQ(answer().request, 5U);
}

// Memory of a predecessor: which engine the group has is said later, so all of them know it by then.
TEST_F(SharingProcess, IsNotAnsweredForMemoryOfAPredecessor) {
  constexpr uint64_t kNumber = 99;
  const std::array<int, 1> fds = {memory_.fd()};
  send(ipc::encode(ipc::Kind::kShare, ipc::MemoryRequest{0, kHandle + 1, kNumber}), fds);
  handle();
  pass_engines();
  EXPECT_FALSE(daemon_.mailbox.run());
  EXPECT_FALSE(is_answered());
  const std::shared_ptr<SharedMemory> mapped = daemon_.sessions->find(kSession)->memories.at(kNumber).memory;
  EXPECT_EQ(mapped.use_count(), 2 + static_cast<long>(kEngines));
}

}  // namespace
}  // namespace hdt::daemon
