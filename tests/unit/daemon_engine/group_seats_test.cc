// group_seats_test.cc: when the making of a group is over for a daemon that wants to go, and when a group
// that failed meanwhile is over: a group of two nodes, of which the test plays the other one.
#include <gtest/gtest.h>

#include "daemon/engine/session_table.h"
#include "daemon/group/engine_group.h"
#include "daemon/group/group_table.h"
#include "tests/unit/daemon_engine/played.h"
#include "tests/unit/transports/link_world.h"

namespace hdt::daemon {
namespace {

using transport::LinkWorld;

constexpr uint64_t kSeatedGroup = 7;
constexpr int64_t kSuccessorMs = 30'000;

GroupSpec played_spec(std::vector<uint32_t> node_of_rank) {
  const auto ranks = static_cast<uint32_t>(node_of_rank.size());
  const uint32_t nodes = node_of_rank.back() + 1;
  const ipc::Layout layout(ranks, nodes, ranks / nodes);
  GroupSpec spec;
  spec.id = kSeatedGroup;
  spec.group_class = "default";
  spec.node_of_rank = std::move(node_of_rank);
  spec.nodes.resize(nodes);
  spec.memory = std::make_shared<SharedMemory>(SharedMemory::create("group", layout.total).take());
  return spec;
}

// How many messages of that kind the other end has got.
template <typename Message>
int sent(const LinkWorld& world) {
  return static_cast<int>(
      std::count_if(world.b.messages.begin(), world.b.messages.end(), [](const auto& message) {
        const EngineMessage note = decode_engine_message(message);
        return std::holds_alternative<Message>(note);
      }));
}

class GroupThatTakesItsSeats : public ::testing::Test {
 protected:
  GroupThatTakesItsSeats() : group_(played_spec({0, 1}), 0, std::make_unique<PlayedServices>()) {
    for (LinkWorld* world : {&first_, &second_}) {
      world->connect();
      EXPECT_TRUE(world->wait_for_rails(1));
    }
    come_up(first_);
    group_.on_link_measured(1, {});
    group_.on_message(1, RatesMessage{kSeatedGroup, 1, {{}, std::vector<ipc::LinkRates>(2)}}, first_.a.link);
    group_.on_message(1, GroupReady{kSeatedGroup, 1}, first_.a.link);
    EXPECT_TRUE(group_.ready());
  }

  void come_up(LinkWorld& world) {
    group_.on_link_up(1, world.a.link, {}, 0);
    group_.on_message(1, GroupHello{kSeatedGroup, 1, {}, kSuccessorMs}, world.a.link);
  }
  static void take_seat(EngineGroup& group, uint32_t local) {
    group.segment().rank_state(local).pid = 1;
    group.progress();
  }
  void hear_of_their_seats(LinkWorld& world) {
    group_.on_message(1, GroupSeated{kSeatedGroup, 1}, world.a.link);
  }
  // How often the other node has been told of the seats here.
  static int told(const LinkWorld& world) { return sent<GroupSeated>(world); }

  LinkWorld first_{1, 1};
  LinkWorld second_{2, 1};
  EngineGroup group_;
};

TEST_F(GroupThatTakesItsSeats, IsMadeOnceAllSeatsAreTakenAndTheOtherNodeHasHeard) {
  EXPECT_FALSE(group_.is_made()) << "the rank has not taken its seat";
  hear_of_their_seats(first_);
  EXPECT_FALSE(group_.is_made()) << "nor now";
  take_seat(group_, 0);
  EXPECT_EQ(group_.segment().header().seated, 1U);
  EXPECT_FALSE(group_.is_made()) << "the other node has not heard of it";
  ASSERT_TRUE(first_.run_until([this] { return group_.is_made(); }));
  EXPECT_EQ(told(first_), 1);
}

TEST_F(GroupThatTakesItsSeats, IsNotMadeBeforeTheOtherNodeHasTakenItsOwn) {
  take_seat(group_, 0);
  ASSERT_TRUE(first_.run_until([this] { return told(first_) == 1; }));
  for (int i = 0; i < 100; ++i) {
    first_.poll();
    EXPECT_FALSE(group_.is_made());
  }
  hear_of_their_seats(first_);
  EXPECT_TRUE(first_.run_until([this] { return group_.is_made(); }));
}

// The other node's daemon is killed before it has heard: whichever daemon is here then tells the next one.
TEST_F(GroupThatTakesItsSeats, ANodeThatComesBackIsToldAgain) {
  hear_of_their_seats(first_);
  take_seat(group_, 0);
  EXPECT_FALSE(group_.is_made());
  group_.on_link_down(1, first_.a.link, {Code::kDaemonLost, "killed"}, true);
  ASSERT_TRUE(group_.is_suspended(1));
  EXPECT_TRUE(group_.is_made()) << "nothing is left that this daemon could do";
  come_up(second_);
  group_.on_message(1, Resume{kSeatedGroup, 1, 0, 0, 0}, second_.a.link);
  ASSERT_FALSE(group_.is_suspended(1));
  EXPECT_FALSE(group_.is_made()) << "the next one has not heard either";
  ASSERT_TRUE(second_.run_until([this] { return group_.is_made(); }));
  EXPECT_EQ(told(second_), 1);
}

TEST_F(GroupThatTakesItsSeats, AnotherLinkIsToldWhatTheOldOneMayHaveLost) {
  hear_of_their_seats(first_);
  take_seat(group_, 0);
  group_.follow(1, second_.a.link, {}, 0, {});
  EXPECT_FALSE(group_.is_made());
  ASSERT_TRUE(second_.run_until([this] { return group_.is_made(); }));
  EXPECT_EQ(told(second_), 1);
}

TEST_F(GroupThatTakesItsSeats, NoOtherLinkIsToldWhatHasBeenHeard) {
  hear_of_their_seats(first_);
  take_seat(group_, 0);
  ASSERT_TRUE(first_.run_until([this] { return group_.is_made(); }));
  group_.follow(1, second_.a.link, {}, 0, {});
  EXPECT_TRUE(group_.is_made());
  for (int i = 0; i < 100; ++i) second_.poll();
  EXPECT_EQ(told(second_), 0);
}

TEST_F(GroupThatTakesItsSeats, IsNotWaitedForOnceItHasFailed) {
  EXPECT_FALSE(group_.is_made());
  group_.fail(Code::kTimeout, -1, "a rank did not take its seat");
  EXPECT_TRUE(group_.is_made());
}

TEST_F(GroupThatTakesItsSeats, OneNodeIsMadeOnceItsRanksHaveTheirs) {
  EngineGroup alone(played_spec({0, 0}), 1, std::make_unique<PlayedServices>());
  take_seat(alone, 0);
  EXPECT_FALSE(alone.is_made());
  take_seat(alone, 1);
  EXPECT_TRUE(alone.is_made());
}

// The group fails and is left while it has no link; before the engine lets go of it, the link comes up. The
// other node learns of both, or it would keep its part for ever.
TEST(GroupWithoutALink, SaysOnItsFirstLinkThatItHasFailedAndIsLeft) {
  EngineGroup group(played_spec({0, 1}), 0, std::make_unique<PlayedServices>());
  group.fail(Code::kRankLost, 1, "a rank of the other node has failed");
  group.local_rank_departed(0);
  EXPECT_TRUE(group.departure_sent());
  EXPECT_TRUE(group.finished());
  LinkWorld world(3, 1);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(1));
  group.on_link_up(1, world.a.link, {}, 0);
  group.on_message(1, GroupHello{kSeatedGroup, 1, {}, kSuccessorMs}, world.a.link);
  EXPECT_FALSE(group.finished()) << "the other node has a part in it now";
  EXPECT_NE(group.stays_for().find("has not departed"), std::string::npos) << group.stays_for();
  ASSERT_TRUE(world.run_until([&] { return sent<NodeDeparted>(world) > 0; }));
  EXPECT_EQ(sent<GroupFailed>(world), 1);
  EXPECT_EQ(sent<NodeDeparted>(world), 1);
  group.on_message(1, NodeDeparted{kSeatedGroup, 1}, world.a.link);
  EXPECT_TRUE(group.finished());
  EXPECT_EQ(group.stays_for(), "");
}

// The sessions of two ranks have ended before they got their seats, and a third one's failure came before.
// The first failure counts, and none of them is waited for.
TEST(GroupOfARankThatIsLost, LosesTheOthersAsWell) {
  for (const bool failed_before : {false, true}) {
    GroupTable groups;
    const uint32_t index = groups.make_room();
    EngineGroup& group = groups.enter(
        index, std::make_unique<EngineGroup>(played_spec({0, 0}), index, std::make_unique<PlayedServices>()));
    SessionTable sessions({}, -1, groups);
    if (failed_before) group.fail(Code::kMismatch, -1, "two jobs");
    sessions.attach(0, 0, kSeatedGroup, 0);
    EXPECT_TRUE(group.has_local_ranks());
    sessions.attach(0, 0, kSeatedGroup, 1);
    EXPECT_FALSE(group.has_local_ranks());
    EXPECT_EQ(group.context().failure().code(), failed_before ? Code::kMismatch : Code::kRankLost);
    EXPECT_EQ(group.context().failed_rank(), failed_before ? -1 : 0);
  }
}

}  // namespace
}  // namespace hdt::daemon
