// group_maker_test.cc: whose word about a group counts, and which groups are not made.
#include "daemon/membership/group_maker.h"

#include <gtest/gtest.h>

#include <new>

namespace hdt::daemon {
namespace {

constexpr ChannelId kCoordinator = 5;

class GroupMakerTest : public ::testing::Test, public Channels, public GroupMakerUser {
 protected:
  GroupMakerTest() {
    node_.id.bytes[0] = std::byte{1};
    node_.name = "here";
    node_.rails = {{{"tcp", "lo", "127.0.1.1:1"}}};
    maker_.emplace(node_, config_, *this, *this);
  }

  ChannelId dial(const std::string&, std::optional<bool>) override { return kCoordinator; }
  void send(ChannelId, const ControlMessage& message) override {
    if (const auto* join = std::get_if<Join>(&message)) sent_.push_back(*join);
    if (const auto* cancel = std::get_if<Cancel>(&message)) cancels_.push_back(*cancel);
    if (no_memory_for_outcomes_ && std::holds_alternative<Outcome>(message)) throw std::bad_alloc();
  }
  void finish(ChannelId) override {}
  void give_up(ChannelId) override {}
  Status host(const HostedPlace&) override { return Status::ok(); }
  void leave(const HostedPlace&) override {}
  Result<std::shared_ptr<UserLimits::Claim>> claim(uint32_t, UserLimits::What) override {
    return std::shared_ptr<UserLimits::Claim>();
  }
  void create(uint32_t, GroupSpec spec) override { specs_.push_back(std::move(spec)); }
  void post(std::function<void()> work) override { work(); }
  void fail(uint32_t, uint64_t, const Outcome&) override { ++failed_; }
  bool joined(const LocalJoin&, const MadeGroup&) override {
    ++joined_;
    return !no_memory_;
  }
  void refused(const LocalJoin&, const Status& why) override { refused_.push_back(why); }
  bool rank_failed(const MadeGroup&, uint32_t local) override {
    if (!no_memory_) lost_.push_back(local);
    return !no_memory_;
  }
  std::vector<std::vector<RailEnd>> rails_for(const std::string&) override { return node_.rails; }

  static GroupKey key(uint8_t number) { return GroupKey{std::byte{number}}; }
  void join(uint8_t number, Code code = Code::kSuccess) {
    LocalJoin join;
    join.session = number;
    join.request.code = code;
    join.request.key = key(number);
    join.request.ranks = 1;
    join.request.group_class = "dp";
    join.request.rendezvous = "127.0.1.1:1";
    join.request.timeout_ms = INT64_MAX;
    maker_->on_join(join);
  }
  // One of three ranks.
  void join_of_three(uint32_t rank, uint64_t session, Code code = Code::kSuccess) {
    LocalJoin join;
    join.session = session;
    join.request.code = code;
    join.request.text = "no more";
    join.request.key = key(1);
    join.request.ranks = 3;
    join.request.rank = rank;
    join.request.group_class = "dp";
    join.request.rendezvous = "127.0.1.1:1";
    join.request.timeout_ms = INT64_MAX;
    maker_->on_join(join);
  }
  // A group of three ranks, all of them here.
  void make_group_of_three() {
    for (uint32_t rank : {2u, 0u, 1u}) join_of_three(rank, rank);
    maker_->on_membership(kCoordinator, {key(1), GroupKey{std::byte{9}}, "dp", {node_}, {0, 0, 0}});
    ASSERT_EQ(specs_.size(), 1U);
  }
  // Until there is memory nothing of it happens; then each rank is lost once.
  void expect_three_to_be_lost_once() {
    EXPECT_TRUE(maker_->next_time().has_value());
    maker_->on_time();
    EXPECT_TRUE(lost_.empty());
    no_memory_ = false;
    maker_->on_time();
    EXPECT_EQ(lost_, (std::vector<uint32_t>{0, 1, 2}));
    EXPECT_FALSE(maker_->next_time().has_value());
    maker_->on_time();
    EXPECT_EQ(lost_.size(), 3U);
  }
  Membership membership(uint8_t number, uint8_t id) const {
    return {key(number), GroupKey{std::byte{id}}, "dp", {node_}, {0}};
  }

  NodeInfo node_;
  Config config_;
  std::vector<GroupSpec> specs_;
  std::vector<Status> refused_;
  std::vector<Join> sent_;
  std::vector<Cancel> cancels_;
  // The local indices of ranks of whose loss the engine was told.
  std::vector<uint32_t> lost_;
  bool no_memory_ = false, no_memory_for_outcomes_ = false;
  int joined_ = 0, failed_ = 0;
  std::optional<GroupMaker> maker_;
};

TEST_F(GroupMakerTest, OnlyTheCoordinatorMakesTheGroupOrEndsIt) {
  join(1);
  maker_->on_membership(kCoordinator + 1, membership(1, 9));
  maker_->on_outcome(kCoordinator + 1, Outcome{key(1), Code::kTimeout, -1, "says a stranger"});
  EXPECT_TRUE(specs_.empty());
  EXPECT_TRUE(refused_.empty());
  maker_->on_membership(kCoordinator, membership(1, 9));
  ASSERT_EQ(specs_.size(), 1U);
  specs_[0].on_ready(Status::ok());
  EXPECT_EQ(joined_, 1);
}

// The coordinator chooses the id, and anybody may be the coordinator.
TEST_F(GroupMakerTest, AnIdThatIsInUseIsNotGivenToAnotherGroup) {
  join(1);
  maker_->on_membership(kCoordinator, membership(1, 9));
  join(2);
  maker_->on_membership(kCoordinator, membership(2, 9));
  EXPECT_EQ(specs_.size(), 1U) << "the first one is still being made";
  ASSERT_EQ(refused_.size(), 1U);
  EXPECT_EQ(refused_[0].code(), Code::kInvalidUsage);
  specs_[0].on_ready(Status::ok());
  join(3);
  maker_->on_membership(kCoordinator, membership(3, 9));
  EXPECT_EQ(specs_.size(), 1U);
  EXPECT_EQ(failed_, 0);
  ipc::Description adopted{ipc::Layout(1, 1, 1), 0, specs_[0].id, "dp", key(7), 0};
  EXPECT_FALSE(maker_->on_adopted(adopted, 0, 1, 2).is_ok());
  adopted.group = 1234;
  adopted.meeting_key = key(1);
  EXPECT_FALSE(maker_->on_adopted(adopted, 0, 1, 2).is_ok()) << "by its key";
  adopted.meeting_key = key(8);
  EXPECT_TRUE(maker_->on_adopted(adopted, 0, 1, 2).is_ok());
}

// Its process may end before the coordinator can be reached, and the others wait all the same.
TEST_F(GroupMakerTest, WhoDeclinesIsHeardAfterItsEnd) {
  join(1, Code::kSystem);
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].code, Code::kSystem);
  maker_->on_session_ended(1, "ended");
  EXPECT_EQ(maker_->open_groups(), 1U);
  maker_->on_closed(kCoordinator, {Code::kLink, "refused"});
  for (const Deadline late = Deadline::after_ms(30'000); sent_.size() < 2 && !late.expired();)
    maker_->on_time();
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[1].code, Code::kSystem);
  maker_->on_outcome(kCoordinator, Outcome{key(1), Code::kSystem, 0, "no memory"});
  EXPECT_EQ(maker_->open_groups(), 0U);
}

TEST_F(GroupMakerTest, WhoWithdrawsEndsTheWaitOfAll) {
  join_of_three(0, 10);
  join_of_three(1, 11);
  join_of_three(1, 12, Code::kAborted);
  ASSERT_EQ(refused_.size(), 1U) << "one process cannot speak for another";
  EXPECT_EQ(refused_[0].code(), Code::kMismatch);
  EXPECT_TRUE(cancels_.empty());
  join_of_three(1, 11, Code::kAborted);
  ASSERT_EQ(refused_.size(), 4U) << "both who wait, and the message that says so";
  for (size_t i = 1; i < refused_.size(); ++i) EXPECT_EQ(refused_[i].code(), Code::kAborted);
  ASSERT_EQ(cancels_.size(), 1U);
  EXPECT_EQ(cancels_[0].rank, 1U);
  EXPECT_EQ(cancels_[0].text, "no more");
  EXPECT_EQ(maker_->open_groups(), 0U);
  join_of_three(2, 13);
  EXPECT_EQ(refused_.size(), 5U) << "who comes late need not wait";
}

TEST_F(GroupMakerTest, WhoWithdrawsFromAGroupThatIsMadeFailsIt) {
  make_group_of_three();
  join_of_three(1, 1, Code::kAborted);
  EXPECT_EQ(failed_, 1);
  EXPECT_EQ(refused_.size(), 1U);
}

// Another run of the job, while the coordinator of the one before could not be reached.
TEST_F(GroupMakerTest, WhoComesAgainHasNotDeclined) {
  join(1, Code::kSystem);
  join(1);
  EXPECT_EQ(refused_.size(), 1U);
  maker_->on_membership(kCoordinator, membership(1, 9));
  ASSERT_EQ(specs_.size(), 1U);
  specs_[0].on_ready(Status::ok());
  EXPECT_EQ(joined_, 1);
}

// Otherwise the group keeps seats for which nobody comes, and its other ranks wait for them.
TEST_F(GroupMakerTest, TheLossOfRanksIsToldWhenThereIsMemory) {
  make_group_of_three();
  no_memory_ = true;
  specs_[0].on_ready(Status::ok());
  EXPECT_EQ(joined_, 3);
  expect_three_to_be_lost_once();
}

TEST_F(GroupMakerTest, AGroupThatCannotBeTakenUpAnswersAllItsRanks) {
  make_group_of_three();
  no_memory_ = no_memory_for_outcomes_ = true;
  specs_[0].on_ready(Status::ok());
  EXPECT_EQ(joined_, 0);
  EXPECT_EQ(failed_, 1);
  ASSERT_EQ(refused_.size(), 3U);
  for (const Status& why : refused_) EXPECT_EQ(why.code(), Code::kInternal);
  expect_three_to_be_lost_once();
}

}  // namespace
}  // namespace hdt::daemon
