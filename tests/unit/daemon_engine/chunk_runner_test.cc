// chunk_runner_test.cc: what the daemon does of a call, without links: a node of two, whose other one is
// never heard of.
#include "daemon/group/chunk_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon_engine/played.h"

namespace hdt::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kMemory = 5;          // its number
constexpr uint64_t kElements = 1 << 20;  // large enough to be used in place

class CallInPlace : public ::testing::Test, protected PlayedServices {
 protected:
  CallInPlace() {
    context_.id = 7;
    context_.group_class = "default";
    context_.order = ipc::Order({0, 1}, 2);
    context_.nodes.resize(2);
    context_.local_ranks = {0};
    context_.peers.resize(2);
    for (GroupPeer& peer : context_.peers) peer.layout = layout_;
    context_.segment = ipc::Segment::format(memory_.data(), layout_, context_.id, "default", 0);
    context_.services = this;
    context_.direct.set_services(*this);
    context_.fail = [this](Code, int32_t, const std::string& text) { failures_.push_back(text); };
    runner_.emplace(context_);
  }

  std::shared_ptr<SharedMemory> find_memory(uint32_t, uint64_t number) override {
    return number == kMemory ? shared_ : nullptr;
  }

  void enter_allreduce() {
    ipc::Call call;
    call.what = collectives::Collective::kAllReduce;
    call.count = kElements;
    ipc::RankState& rank_state = context_.segment.rank_state(0);
    rank_state.calls[0] = {call, {.send = 0, .recv = 0, .send_memory = kMemory, .recv_memory = kMemory}};
    rank_state.entered.store(1);
  }
  void share_memory(uint64_t elements) {
    shared_ =
        std::make_shared<SharedMemory>(SharedMemory::create("shared", elements * sizeof(int32_t)).take());
  }

  const ipc::Layout layout_{2, 2, 1};
  SharedMemory memory_ = SharedMemory::create("group", layout_.total).take();
  std::shared_ptr<SharedMemory> shared_;
  GroupContext context_;
  std::optional<ChunkRunner> runner_;
  std::vector<std::string> failures_;
};

TEST_F(CallInPlace, TakesTheBuffersOfMemoryThatItsProcessShares) {
  share_memory(kElements);
  enter_allreduce();
  runner_->progress();
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_EQ(runner_->calls_entered(), 1U);
}

// A process has its memory's number from an answer that comes when the engine knows the memory.
TEST_F(CallInPlace, FailsAtOnceWhereItsProcessDoesNotShareTheMemory) {
  enter_allreduce();
  runner_->progress();
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_THAT(failures_[0], HasSubstr("names memory that its process does not share"));
  EXPECT_EQ(runner_->calls_entered(), 0U);
}

TEST_F(CallInPlace, FailsWhereTheMemoryIsSmallerThanTheBuffer) {
  share_memory(kElements - 1);
  enter_allreduce();
  runner_->progress();
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_THAT(failures_[0], HasSubstr("not within the memory that the call names"));
}

// Ranks write what they like into their rank states; what is no call is neither described nor run.
TEST_F(CallInPlace, ACallThatIsNoneFailsTheGroupByName) {
  enter_allreduce();
  context_.segment.rank_state(0).calls[0].call.type = static_cast<collectives::DataType>(255);
  runner_->progress();
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_THAT(failures_[0], HasSubstr("by rank 0: unknown type 255"));
  EXPECT_EQ(runner_->calls_entered(), 0U);
}

// A rank can take back what stands in the segment, or stand in the way of it; what the daemon has seen holds.
TEST_F(CallInPlace, TheFailureOfAGroupHoldsWhateverARankWritesOverIt) {
  EXPECT_FALSE(context_.failed());
  auto& word = context_.segment.header().failure.word;
  word.store(2);
  EXPECT_TRUE(context_.failed());
  word.store(0);
  EXPECT_TRUE(context_.failed());
  EXPECT_FALSE(context_.failure().is_ok());
  EXPECT_FALSE(context_.set_failure(Code::kInternal, -1, "again"));
}

TEST_F(CallInPlace, AGroupFailsAlthoughRanksAreForEverAboutToSayOfWhat) {
  for (ipc::FailureText& text : context_.segment.header().failure.texts) text.taken.store(1);
  EXPECT_TRUE(context_.set_failure(Code::kLink, -1, "the link is down"));
  EXPECT_TRUE(context_.failed());
  EXPECT_EQ(context_.failure().code(), Code::kLink);
}

}  // namespace
}  // namespace hdt::daemon
