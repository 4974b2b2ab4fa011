// engine_test.cc: an engine thread with groups of one node, without sockets: the test plays the daemon's
// control thread.
#include "daemon/engine/engine.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "base/clock.h"
#include "tests/unit/daemon_engine/played.h"

namespace hdt::daemon {
namespace {

constexpr uint64_t kGroup = 7;
constexpr uint64_t kSession = 1;
constexpr auto kAnswerTime = std::chrono::seconds(30);

class EngineOfOneNode : public ::testing::Test, private PlayedControl {
 protected:
  EngineOfOneNode() : engine_(options(), *this) {
    EXPECT_TRUE(engine_.start().is_ok());
    session_->number = kSession;
    session_->memory = SharedMemory::create("page", sizeof(ipc::WakePage)).take();
    new (session_->memory.data()) ipc::WakePage();
    session_->eventfds.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    on_engine([&] { engine_.sessions().add(session_); });
  }
  ~EngineOfOneNode() override { engine_.stop(); }

  // Returns after the engine's thread has run it.
  void on_engine(const std::function<void()>& work) {
    std::promise<void> done;
    engine_.post([&] {
      work();
      done.set_value();
    });
    ASSERT_EQ(done.get_future().wait_for(kAnswerTime), std::future_status::ready);
  }

  // A group of one rank, which has this handle of the session.
  ipc::Segment make_group(uint32_t handle = 0) {
    const ipc::Layout layout(1, 1, 1);
    memory_ = std::make_shared<SharedMemory>(SharedMemory::create("group", layout.total).take());
    GroupSpec spec;
    spec.id = kGroup;
    spec.group_class = "default";
    spec.node_of_rank = {0};
    spec.nodes.resize(1);
    spec.memory = memory_;
    on_engine([&] {
      engine_.create_group(std::move(spec));
      engine_.sessions().attach(kSession, handle, kGroup, 0);
    });
    return ipc::Segment::attach(memory_->data(), memory_->size()).take();
  }

  // As a process does (Session::ring()).
  void ring(uint32_t handle) {
    auto& bell = reinterpret_cast<ipc::WakePage*>(session_->memory.data())->engines[0];
    const uint32_t bit = handle % (ipc::kAttentionWords * 64);
    bell.attention[bit / 64].fetch_or(uint64_t{1} << bit % 64);
    if (bell.asleep.load() != 0) ::eventfd_write(session_->eventfds[0].get(), 1);
  }

  std::promise<GroupFacts> ended_;

 private:
  void on_ended(GroupFacts facts) override { ended_.set_value(std::move(facts)); }

  EngineOptions options() {
    EngineOptions options;
    options.node_name = "here";
    return options;
  }

  std::shared_ptr<SessionLink> session_ = std::make_shared<SessionLink>();
  std::shared_ptr<SharedMemory> memory_;
  Engine engine_;

 protected:
  Engine& engine() { return engine_; }
};

// The daemon ends in order; it finds on the rank's state that it has left, ends the group, and only then
// gets the message.
TEST_F(EngineOfOneNode, ARanksMessageThatItLeavesMayComeAfterTheEndOfItsGroup) {
  ipc::Segment segment = make_group();
  segment.rank_state(0).departed.store(1);
  on_engine([&] { engine().fail_all(Code::kDaemonLost, "the daemon ends"); });
  std::future<GroupFacts> ended = ended_.get_future();
  ASSERT_EQ(ended.wait_for(kAnswerTime), std::future_status::ready);
  EXPECT_EQ(ended.get().local.size(), 1U);
  on_engine([&] {
    engine().sessions().leave(kSession, 0);
    engine().sessions().fail(kSession, 0, Code::kAborted, 0, "too late");
    engine().sessions().process_ended(kSession, "ended");
  });
  EXPECT_FALSE(segment.failed());
}

// A process may have a thousand groups, of which this engine has one.
TEST_F(EngineOfOneNode, ARankRingsByAHandleBeyondTheBits) {
  for (const uint32_t handle : {0U, 1023U, 1024U, 5000U}) {
    SCOPED_TRACE(handle);
    ipc::Segment segment = make_group(handle);
    ipc::RankState& rank = segment.rank_state(0);
    // The work that follows the seat itself is over; now only the ring makes the engine look.
    on_engine([] {});
    on_engine([] {});
    rank.echo_asked.store(1);
    ring(handle);
    const Deadline until = Deadline::after_ms(30'000);
    while (rank.echo_given.load() != 1 && !until.expired()) std::this_thread::yield();
    EXPECT_EQ(rank.echo_given.load(), 1U);
    rank.departed.store(1);
    on_engine([&] { engine().sessions().leave(kSession, handle); });
    ASSERT_EQ(ended_.get_future().wait_for(kAnswerTime), std::future_status::ready);
    on_engine([&] { ended_ = {}; });  // for the next group
  }
}

// The engine of this test sleeps as soon as a round has found nothing (spin_ns is 0), so nearly every ring
// finds it asleep or about to be. One that is lost leaves it so until the deadline.
TEST_F(EngineOfOneNode, AnEngineThatSleepsAtOnceHearsEveryRing) {
  constexpr uint32_t kRings = 20'000;
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  ipc::Segment segment = make_group();
  ipc::RankState& rank = segment.rank_state(0);
  for (uint32_t asked = 1; asked <= kRings; ++asked) {
    for (unsigned looks = random() % 200; looks > 0; --looks)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    rank.echo_asked.store(asked);
    ring(0);
    const Deadline until = Deadline::after_ms(30'000);
    while (rank.echo_given.load() != asked && !until.expired()) std::this_thread::yield();
    ASSERT_EQ(rank.echo_given.load(), asked);
  }
  rank.departed.store(1);
  on_engine([&] { engine().sessions().leave(kSession, 0); });
  EXPECT_EQ(ended_.get_future().wait_for(kAnswerTime), std::future_status::ready);
}

// The engine had no memory to enter the session, and then some for what the session shares.
TEST_F(EngineOfOneNode, MemoryGoesWithASessionThatWasNotEntered) {
  constexpr uint64_t kUnknown = kSession + 1;
  auto memory = std::make_shared<SharedMemory>(SharedMemory::create("shared", 4096).take());
  const std::weak_ptr<SharedMemory> held = memory;
  on_engine([&] { engine().sessions().add_memory(kUnknown, 5, 0, std::move(memory)); });
  EXPECT_FALSE(held.expired());
  on_engine([&] { engine().sessions().process_ended(kUnknown, "ended"); });
  EXPECT_TRUE(held.expired());
}

// The first one goes on, and the second one's ranks hear why they have none.
TEST_F(EngineOfOneNode, TwoGroupsOfOneIdAreNotMade) {
  const ipc::Segment segment = make_group();
  GroupSpec spec;
  spec.id = kGroup;
  spec.node_of_rank = {0};
  spec.nodes.resize(1);
  spec.memory = std::make_shared<SharedMemory>(SharedMemory::create("other", segment.layout().total).take());
  Status ready;
  spec.on_ready = [&](const Status& status) { ready = status; };
  on_engine([&] {
    engine().create_group(std::move(spec));
    engine().sessions().attach(kSession, 1, kGroup, 99);  // no such rank
  });
  EXPECT_FALSE(ready.is_ok());
  EXPECT_FALSE(segment.failed());
  segment.rank_state(0).departed.store(1);
  on_engine([&] { engine().fail_all(Code::kDaemonLost, "the daemon ends"); });
  EXPECT_EQ(ended_.get_future().wait_for(kAnswerTime), std::future_status::ready);
}

}  // namespace
}  // namespace hdt::daemon
