// group_move_test.cc: a group of two nodes that moves from one link to another, and whose other rank departs
// before its messages have come; the test plays the other node.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "daemon/group/engine_group.h"
#include "tests/unit/daemon_engine/played.h"
#include "tests/unit/transports/link_world.h"

namespace hdt::daemon {
namespace {

using ipc::Direction;
using transport::LinkWorld;

constexpr uint64_t kMovingGroup = 7;

class GroupOfTwo : public ::testing::Test {
 protected:
  GroupOfTwo() : group_(spec(), 0, std::make_unique<PlayedServices>()) {
    for (LinkWorld* world : {&old_, &fresh_}) {
      world->connect();
      EXPECT_TRUE(world->wait_for_rails(1));
      world->a.when_sent = [this, world](uint64_t token) {
        group_.on_sent(1, world->a.link, WriteToken::unpack(token));
      };
    }
    group_.on_link_up(1, old_.a.link, {}, 0);
    group_.on_message(1, GroupHello{kMovingGroup, 1, region(old_), 0}, old_.a.link);
    group_.on_link_measured(1, {});
    group_.on_message(1, RatesMessage{kMovingGroup, 1, {{}, std::vector<ipc::LinkRates>(2)}}, old_.a.link);
    group_.on_message(1, GroupReady{kMovingGroup, 1}, old_.a.link);
    EXPECT_TRUE(group_.ready());
  }

  GroupSpec spec() {
    GroupSpec spec;
    spec.id = kMovingGroup;
    spec.group_class = "default";
    spec.node_of_rank = {0, 1};
    spec.nodes.resize(2);
    spec.memory = std::make_shared<SharedMemory>(SharedMemory::create("group", layout_.total).take());
    return spec;
  }
  transport::RegionKey region(LinkWorld& world) { return world.b.enlist(theirs_.data(), theirs_.size()); }
  ipc::MessageRing& ring() { return group_.segment().ring(index_); }

  // As rank 0 does.
  void send_small_message() {
    std::byte* chunk = group_.segment().data() + layout_.cell(index_, 0);
    *reinterpret_cast<ipc::CellHeader*>(chunk) = {0, sizeof(int), 0, sizeof(int)};
    ring().head = 1;
    ipc::RankState& rank_state = group_.segment().rank_state(0);
    rank_state.attention[0] = index_;
    rank_state.attention_head = 1;
    group_.progress();
  }
  void poll() {
    old_.poll();
    fresh_.poll();
    if (const auto time = group_.next_time(); time && time->expired()) group_.on_time();
  }

  const ipc::Layout layout_{2, 2, 1};
  const uint32_t index_ = layout_.ring_index(Direction::kOut, 0, 1);
  SharedMemory theirs_ = SharedMemory::create("peer", layout_.total).take();
  LinkWorld old_{1, 1};
  LinkWorld fresh_{2, 1};
  EngineGroup group_;
};

// Ordinarily what a peer says later on the same link tells that small chunks have arrived.
TEST_F(GroupOfTwo, AsksWhatHasArrivedOnTheOldLinkWhereNothingFollows) {
  send_small_message();
  ASSERT_TRUE(old_.run_until([&] { return old_.b.arrived.size() == 1; }));
  for (int i = 0; i < 100; ++i) poll();
  EXPECT_EQ(ring().tail, 0U);
  group_.follow(1, fresh_.a.link, {}, 0, region(fresh_));
  group_.progress();
  ASSERT_TRUE(group_.next_time());
  const Deadline until = Deadline::after_ms(30'000);
  while (ring().tail == 0 && !until.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    poll();
  }
  EXPECT_EQ(ring().tail, 1U);
}

// Cells travel on all rails, so they may come after the messages that tell the departure.
TEST_F(GroupOfTwo, ARingEndsWithTheLastCellOfItsWriter) {
  const uint32_t incoming = layout_.ring_index(Direction::kIn, 0, 1);
  const ipc::MessageRing& from = group_.segment().ring(incoming);
  group_.on_message(1, RingEnded{kMovingGroup, 1, 0, 2}, old_.a.link);
  group_.on_frame(1, CellFrame{kMovingGroup, 0, 1, 0}, sizeof(ipc::CellHeader));
  group_.on_message(1, RankDeparted{kMovingGroup, 1, 0}, old_.a.link);
  EXPECT_EQ(from.head, 1U);
  EXPECT_EQ(from.ended, 0U);
  EXPECT_EQ(ring().ended, 1U) << "the rank receives nothing more";
  group_.on_frame(1, CellFrame{kMovingGroup, 1, 1, 0}, sizeof(ipc::CellHeader));
  EXPECT_EQ(from.head, 2U);
  EXPECT_EQ(from.ended, 1U);
  EXPECT_FALSE(group_.segment().failed());
}

TEST_F(GroupOfTwo, ARingWithoutCellsEndsAtOnce) {
  const ipc::MessageRing& from = group_.segment().ring(layout_.ring_index(Direction::kIn, 0, 1));
  // A message about a rank of another node, or about a rank that does not exist, changes nothing.
  group_.on_message(1, RingEnded{kMovingGroup, 0, 1, 9}, old_.a.link);
  group_.on_message(1, RingEnded{kMovingGroup, 7, 0, 9}, old_.a.link);
  group_.on_message(1, RankDeparted{kMovingGroup, 0, 0}, old_.a.link);
  EXPECT_EQ(from.ended, 0U);
  group_.on_message(1, RankDeparted{kMovingGroup, 1, 0}, old_.a.link);
  EXPECT_EQ(from.ended, 1U);
}

}  // namespace
}  // namespace hdt::daemon
