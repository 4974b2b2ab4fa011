// stray_frames_test.cc: an engine that is written to for groups that it does not have; the test is the other
// node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "daemon/engine/engine.h"
#include "daemon/protocol/handshake.h"
#include "daemon/protocol/trust.h"
#include "tests/unit/daemon_engine/played.h"
#include "tests/unit/transports/link_world.h"

namespace hdt::daemon {
namespace {

using transport::Completion;
using transport::Connection;

constexpr uint64_t kSharedGroup = 7;
constexpr uint64_t kUnknownGroup = 8;
constexpr int64_t kPatienceMs = 30'000;

// It has the greater name, so that the test dials.
class EngineWithAPeer : public ::testing::Test {
 protected:
  EngineWithAPeer() : side_(transport::LinkOptions{}), engine_(options(), control_) {
    EXPECT_TRUE(engine_.start().is_ok());
    side_.open_devices(*network_.make_backend(), 'a', 1);
  }
  ~EngineWithAPeer() override { engine_.stop(); }

  EngineOptions options() {
    EngineOptions options;
    options.node = trust_->node();
    options.node_name = "z";
    options.trust = trust_;
    transport::DeviceInfo info;
    info.name = info.address = "z0";
    options.nics = {{"fake", info}};
    options.make_backend = [this](const std::string&) { return network_.make_backend(); };
    options.policy_of = [](const std::string&) { return transport::SharePolicy{}; };
    return options;
  }

  // Returns after the engine's thread has run it.
  void on_engine(const std::function<void()>& work) {
    std::promise<void> done;
    engine_.post([&] {
      work();
      done.set_value();
    });
    ASSERT_EQ(done.get_future().wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
  }

  ipc::Segment make_group() {
    const ipc::Layout layout(2, 2, 1);
    memory_ = std::make_shared<SharedMemory>(SharedMemory::create("group", layout.total).take());
    GroupSpec spec;
    spec.id = kSharedGroup;
    spec.group_class = "default";
    spec.node_of_rank = {0, 1};
    spec.nodes = {{trust_->node(), "z", "z:1", {engine_.rail_ends()}},
                  {own_trust_->node(), "a", "a:1", {{{"fake", "a0", "a0:1"}}}}};
    spec.memory = memory_;
    spec.deadline = Deadline::after_ms(kPatienceMs);
    on_engine([&] { engine_.create_group(std::move(spec)); });
    return ipc::Segment::attach(memory_->data(), memory_->size()).take();
  }

  // As a daemon makes a rail, up to the link's beginning.
  bool connect() {
    PeerHello own{Purpose::kRail, own_trust_->node(), "a", 0, 0, 0, "default"};
    Handshake handshake(Handshake::Role::kDialer, own, own_trust_);
    Connection* const connection =
        side_.devices[0]->connect(engine_.rail_ends().front().address, kPatienceMs).take();
    for (const Deadline until = Deadline::after_ms(kPatienceMs); !handshake.done() && !until.expired();) {
      std::vector<Completion> completions;
      side_.devices[0]->poll(completions);
      for (const Completion& completion : completions) {
        if (completion.kind == Completion::Kind::kConnected)
          for (const auto& message : handshake.start()) (void)connection->send(message, 0);
        if (completion.kind != Completion::Kind::kMessage) continue;
        const auto answer = handshake.on_message(completion.message);
        if (!answer.is_ok()) return false;
        for (const auto& message : answer.value()) (void)connection->send(message, 0);
        if (handshake.done() && !connection->admit(writer(trust_->node())).is_ok()) return false;
      }
    }
    side_.link.add_rail(connection, std::make_unique<transport::NicShare::Lane>(nic_, "default", side_.now));
    return handshake.done();
  }

  bool run_until(const std::function<bool()>& done) {
    for (const Deadline until = Deadline::after_ms(kPatienceMs); !done() && !until.expired();) {
      side_.now = now_ns();
      side_.poll();
      std::this_thread::yield();
    }
    return done();
  }

  // How often the engine has said that it has no such group.
  size_t told_unknown(uint64_t group) const {
    return static_cast<size_t>(
        std::count_if(side_.messages.begin(), side_.messages.end(), [group](const auto& message) {
          const EngineMessage note = decode_engine_message(message);
          const auto* unknown = std::get_if<GroupUnknown>(&note);
          return unknown != nullptr && unknown->group == group;
        }));
  }

  std::optional<transport::RegionKey> their_region() const {
    for (const auto& message : side_.messages) {
      const EngineMessage note = decode_engine_message(message);
      if (const auto* hello = std::get_if<GroupHello>(&note)) return hello->region;
    }
    return {};
  }

  const std::shared_ptr<Trust> trust_ = Trust::open({"a key of sixteen bytes", "", ""}).take();
  const std::shared_ptr<Trust> own_trust_ = Trust::open({"a key of sixteen bytes", "", ""}).take();
  transport::fake::FakeNetwork network_{1};
  transport::NicShare nic_;
  transport::Side side_;
  std::shared_ptr<SharedMemory> memory_;
  PlayedControl control_;
  Engine engine_;
};

// Whoever joins under the id of another group on purpose, or is late, ends nobody else's group.
TEST_F(EngineWithAPeer, AFrameForAnUnknownGroupIsDroppedAndTheLinkStays) {
  const ipc::Segment segment = make_group();
  ASSERT_TRUE(connect());
  ASSERT_TRUE(run_until([&] { return side_.rails_up == 1; }));
  ASSERT_TRUE(side_.link.send(encode(EngineMessage(GroupHello{kSharedGroup, 1, {}, 0}))).is_ok());
  ASSERT_TRUE(run_until([&] { return their_region().has_value(); }));
  const std::vector<std::byte> payload(64);
  for (int i = 0; i < 3; ++i) {
    transport::WriteRequest stray;
    stray.data = payload.data();
    stray.bytes = payload.size();
    stray.region = *their_region();
    stray.offset = segment.layout().data;
    stray.header = encode(ChunkFrame{kUnknownGroup, 0, 1, 0});
    stray.token = 1;
    ASSERT_TRUE(side_.link.write(stray).is_ok());
  }
  ASSERT_TRUE(run_until([&] { return side_.sent.size() == 3; }));
  // The sender believes that the group works, and hears once that it does not.
  EXPECT_TRUE(run_until([&] { return told_unknown(kUnknownGroup) > 0; }));
  EXPECT_EQ(told_unknown(kUnknownGroup), 1U);
  // Behind them on the same link: the group hears it.
  EXPECT_FALSE(segment.failed());
  ASSERT_TRUE(
      side_.link.send(encode(EngineMessage(GroupFailed{kSharedGroup, Code::kRankLost, 1, "over"}))).is_ok());
  EXPECT_TRUE(run_until([&] { return segment.failed(); }));
  EXPECT_THAT(segment.failure().message(), ::testing::HasSubstr("over"));
  EXPECT_FALSE(side_.down.has_value());
}

// The other node has let go of a group that works here: the ranks of this node do not wait for it.
TEST_F(EngineWithAPeer, AGroupThatThePeerHasNotAnyMoreFails) {
  const ipc::Segment segment = make_group();
  ASSERT_TRUE(connect());
  ASSERT_TRUE(run_until([&] { return side_.rails_up == 1; }));
  ASSERT_TRUE(side_.link.send(encode(EngineMessage(GroupHello{kSharedGroup, 1, {}, 0}))).is_ok());
  ASSERT_TRUE(run_until([&] { return their_region().has_value(); }));
  ASSERT_TRUE(side_.link.send(encode(EngineMessage(GroupUnknown{kSharedGroup}))).is_ok());
  EXPECT_TRUE(run_until([&] { return segment.failed(); }));
  EXPECT_THAT(segment.failure().message(), ::testing::HasSubstr("has given the group up"));
  EXPECT_FALSE(side_.down.has_value());
}

// A hello may come before the group is made here: it is kept, and answered with nothing.
TEST_F(EngineWithAPeer, AHelloThatIsEarlyIsKept) {
  ASSERT_TRUE(connect());
  ASSERT_TRUE(run_until([&] { return side_.rails_up == 1; }));
  ASSERT_TRUE(side_.link.send(encode(EngineMessage(GroupHello{kSharedGroup, 1, {}, 0}))).is_ok());
  ASSERT_TRUE(side_.link.send(encode(EngineMessage(GroupSeated{kUnknownGroup, 1}))).is_ok());
  ASSERT_TRUE(run_until([&] { return told_unknown(kUnknownGroup) > 0; }));
  EXPECT_EQ(told_unknown(kSharedGroup), 0U);
  const ipc::Segment segment = make_group();
  EXPECT_TRUE(run_until([&] { return their_region().has_value(); }));
  EXPECT_FALSE(segment.failed());
}

}  // namespace
}  // namespace hdt::daemon
