// rendezvous_test.cc: the coordinator's bookkeeping, event by event.
#include "daemon/membership/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace hdt::daemon {
namespace {

using ::testing::HasSubstr;

NodeInfo node(uint8_t number) {
  NodeInfo info;
  info.id.bytes[0] = std::byte{number};
  info.name = "n" + std::to_string(number);
  info.rails = {{{"tcp", "lo", "127.0.1.1:1"}}};
  return info;
}

Join join(uint32_t ranks, uint32_t rank, uint8_t on_node, int64_t timeout_ms = 60'000) {
  return {GroupKey{}, ranks, rank, "dp", std::nullopt, timeout_ms, node(on_node)};
}

// A process that has existed for `age_ms`, at an address that others can guess.
Join join_at_address(uint32_t ranks, uint32_t rank, uint8_t on_node, int64_t age_ms) {
  Join from = join(ranks, rank, on_node);
  from.meeting = ipc::Meeting::kAddress;
  from.pid = 100 * on_node + rank;
  from.uid = 7;
  from.process_age_ms = age_ms;
  return from;
}

const Outcome& outcome_of(const Rendezvous::Reply& reply) { return std::get<Outcome>(reply.message); }

TEST(RendezvousTest, EveryNodeGetsTheMembershipOnce) {
  Rendezvous rendezvous;
  EXPECT_TRUE(rendezvous.on_join(10, join(3, 2, 2)).empty());
  EXPECT_TRUE(rendezvous.on_join(11, join(3, 0, 1)).empty());
  const auto replies = rendezvous.on_join(11, join(3, 1, 1));
  ASSERT_EQ(replies.size(), 2U);
  for (const auto& reply : replies) {
    const auto& membership = std::get<Membership>(reply.message);
    EXPECT_EQ(membership.node_of_rank, (std::vector<uint32_t>{0, 0, 1}));
    EXPECT_EQ(membership.nodes[0].name, "n1");
  }
  EXPECT_TRUE(rendezvous.on_outcome(10, Outcome{}).empty());
  EXPECT_EQ(rendezvous.open_groups(), 1U);
  EXPECT_TRUE(rendezvous.on_outcome(11, Outcome{}).empty());
  EXPECT_EQ(rendezvous.open_groups(), 0U);
}

TEST(RendezvousTest, ABadOutcomeGoesToTheOthers) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(2, 0, 1));
  rendezvous.on_join(11, join(2, 1, 2));
  const auto replies = rendezvous.on_outcome(10, Outcome{GroupKey{}, Code::kLink, -1, "no way"});
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].to, 11U);
  EXPECT_EQ(outcome_of(replies[0]).code, Code::kLink);
  EXPECT_EQ(rendezvous.open_groups(), 0U);
}

TEST(RendezvousTest, DisagreementIsTheMismatchOfAll) {
  const auto disagree = [](const Join& second) {
    Rendezvous rendezvous;
    rendezvous.on_join(10, join(3, 0, 1));
    const auto replies = rendezvous.on_join(11, second);
    EXPECT_EQ(rendezvous.open_groups(), 0U);
    EXPECT_FALSE(replies.empty());
    for (const auto& reply : replies) EXPECT_EQ(outcome_of(reply).code, Code::kMismatch);
    return replies.empty() ? std::string() : outcome_of(replies.front()).text;
  };
  EXPECT_THAT(disagree(join(4, 1, 2)), HasSubstr("group of 3 ranks, rank 1 one of 4"));
  EXPECT_THAT(disagree(join(3, 0, 2)), HasSubstr("two processes join as rank 0"));
  Join other = join(3, 1, 2);
  other.group_class = "pp";
  EXPECT_THAT(disagree(other), HasSubstr("class"));
}

TEST(RendezvousTest, NodesWithDifferentAlgorithmsAreBothNamed) {
  Rendezvous rendezvous;
  Join first = join(3, 0, 1);
  first.algorithm = collectives::Algorithm::kRing;
  rendezvous.on_join(10, first);
  const auto replies = rendezvous.on_join(11, join(3, 1, 2));
  ASSERT_EQ(replies.size(), 2U);
  for (const auto& reply : replies) {
    EXPECT_EQ(outcome_of(reply).code, Code::kConfig);
    EXPECT_THAT(outcome_of(reply).text,
                HasSubstr("class dp has algorithm \"ring\" on node n1, but \"auto\" on node n2"));
  }
  EXPECT_EQ(rendezvous.open_groups(), 0U);
}

TEST(RendezvousTest, NodesWithTheSameAlgorithmMakeAGroup) {
  Rendezvous rendezvous;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Join same = join(2, rank, static_cast<uint8_t>(rank + 1));
    same.algorithm = collectives::Algorithm::kBruck;
    const auto replies = rendezvous.on_join(10 + rank, same);
    EXPECT_EQ(replies.size(), rank == 0 ? 0U : 2U);
    for (const auto& reply : replies) EXPECT_TRUE(std::holds_alternative<Membership>(reply.message));
  }
}

TEST(RendezvousTest, TheDeadlineNamesWhoDidNotCome) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(4, 1, 1, 1));
  std::vector<Rendezvous::Reply> replies;
  const Deadline limit = Deadline::after_ms(5'000);
  while (replies.empty() && !limit.expired()) replies = rendezvous.on_time();
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(outcome_of(replies[0]).code, Code::kTimeout);
  EXPECT_EQ(outcome_of(replies[0]).rank, 0);
  EXPECT_THAT(outcome_of(replies[0]).text, HasSubstr("rank 0, 2, 3 did not join"));
}

TEST(RendezvousTest, ARankThatIsGoneEndsTheMaking) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(3, 0, 1));
  rendezvous.on_join(11, join(3, 1, 2));
  auto replies = rendezvous.on_closed(11);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].to, 10U);
  EXPECT_EQ(outcome_of(replies[0]).code, Code::kRankLost);
}

TEST(RendezvousTest, ACancelledJoinEndsTheMaking) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(3, 0, 1));
  rendezvous.on_join(11, join(3, 1, 2));
  const auto replies = rendezvous.on_cancel(11, Cancel{GroupKey{}, Code::kRankLost, 1, "rank 1 ended"});
  EXPECT_EQ(replies.size(), 2U);
  EXPECT_EQ(rendezvous.open_groups(), 0U);
}

TEST(RendezvousTest, ADaemonWithoutARankOfTheGroupCannotEndIt) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(3, 0, 1));
  EXPECT_TRUE(rendezvous.on_cancel(12, Cancel{GroupKey{}, Code::kRankLost, 0, "rank 0 ended"}).empty());
  EXPECT_EQ(rendezvous.open_groups(), 1U);
}

TEST(RendezvousTest, OnlyThoseWhoHaveJoinedAreHeard) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(2, 0, 1));
  EXPECT_TRUE(rendezvous.on_cancel(12, Cancel{GroupKey{}, Code::kRankLost, 0, "says a stranger"}).empty());
  rendezvous.on_join(11, join(2, 1, 2));
  EXPECT_TRUE(rendezvous.on_outcome(12, Outcome{GroupKey{}, Code::kLink, -1, "says a stranger"}).empty());
  EXPECT_EQ(rendezvous.open_groups(), 1U);
  EXPECT_EQ(rendezvous.on_outcome(11, Outcome{GroupKey{}, Code::kLink, -1, "no way"}).size(), 1U);
}

// Without it the third rank would wait for the other two until its deadline.
TEST(RendezvousTest, AMemberThatComesAfterTheFailureHearsTheSame) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join_at_address(3, 0, 1, 5'000));
  rendezvous.on_join(11, join_at_address(3, 1, 2, 5'000));
  rendezvous.on_cancel(11, Cancel{GroupKey{}, Code::kRankLost, 1, "rank 1 ended"});
  auto replies = rendezvous.on_join(12, join_at_address(3, 2, 3, 5'000));
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].to, 12U);
  EXPECT_EQ(outcome_of(replies[0]).code, Code::kRankLost);
  EXPECT_EQ(outcome_of(replies[0]).text, "rank 1 ended");
  // A process that started since then belongs to the job's next run.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(rendezvous.on_join(13, join_at_address(3, 0, 1, 0)).empty());
  EXPECT_EQ(rendezvous.open_groups(), 1U);
}

// hdtCommShrink is tried again with the same key by the same processes.
TEST(RendezvousTest, AKeyThatMayBeUsedAgainIsNotRefused) {
  Rendezvous rendezvous;
  Join again = join(3, 0, 1);
  again.meeting = ipc::Meeting::kAgain;
  again.process_age_ms = 5'000;
  rendezvous.on_join(10, again);
  rendezvous.on_cancel(10, Cancel{GroupKey{}, Code::kRankLost, 1, "rank 1 ended"});
  EXPECT_TRUE(rendezvous.on_join(10, again).empty());
}

// It has not joined, and may not know the group's size. Those who wait hear the reason, and those who come
// later.
TEST(RendezvousTest, ARankThatCannotTakePartEndsTheMaking) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(3, 0, 1));
  Join declined = join(2, 1, 2);
  declined.code = Code::kSystem;
  declined.text = "no memory";
  const auto replies = rendezvous.on_join(11, declined);
  ASSERT_EQ(replies.size(), 2U);
  for (const auto& reply : replies) {
    EXPECT_EQ(outcome_of(reply).code, Code::kSystem);
    EXPECT_EQ(outcome_of(reply).rank, 1);
    EXPECT_THAT(outcome_of(reply).text, HasSubstr("rank 1"));
    EXPECT_THAT(outcome_of(reply).text, HasSubstr("no memory"));
  }
  EXPECT_EQ(rendezvous.open_groups(), 0U);
  Join late = join(3, 2, 3);
  late.process_age_ms = 60'000;
  const auto refused = rendezvous.on_join(12, late);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(outcome_of(refused[0]).code, Code::kSystem);
  EXPECT_EQ(rendezvous.open_groups(), 0U);
}

// A rank that declines a group that is complete is none of its ranks.
TEST(RendezvousTest, AGroupThatIsCompleteCannotBeDeclined) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(2, 0, 1));
  rendezvous.on_join(11, join(2, 1, 2));
  Join declined = join(2, 1, 2);
  declined.code = Code::kSystem;
  const auto replies = rendezvous.on_join(12, declined);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].to, 12U);
  EXPECT_EQ(rendezvous.open_groups(), 1U);
}

// The same processes may use the key again: each hears of the failed attempt once.
TEST(RendezvousTest, AnAttemptThatARankDeclinesDoesNotSpoilTheNextOne) {
  Rendezvous rendezvous;
  const auto again = [](uint32_t rank, uint8_t on_node) {
    Join from = join(3, rank, on_node);
    from.meeting = ipc::Meeting::kAgain;
    from.process_age_ms = 60'000;
    return from;
  };
  rendezvous.on_join(10, again(0, 1));
  Join declined = again(1, 2);
  declined.code = Code::kSystem;
  EXPECT_EQ(rendezvous.on_join(11, declined).size(), 2U);
  const auto late = rendezvous.on_join(12, again(2, 3));
  ASSERT_EQ(late.size(), 1U) << "it has not heard of it";
  EXPECT_EQ(outcome_of(late[0]).code, Code::kSystem);
  EXPECT_TRUE(rendezvous.on_join(12, again(2, 3)).empty());
  EXPECT_TRUE(rendezvous.on_join(10, again(0, 1)).empty());
  const auto made = rendezvous.on_join(11, again(1, 2));
  ASSERT_EQ(made.size(), 3U);
  for (const auto& reply : made) EXPECT_TRUE(std::holds_alternative<Membership>(reply.message));
}

TEST(RendezvousTest, TwoProcessesOfOneRankAreBothRefusedAndNamed) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join_at_address(3, 0, 1, 5'000));
  rendezvous.on_join(10, join_at_address(3, 1, 1, 5'000));
  const auto replies = rendezvous.on_join(11, join_at_address(3, 0, 2, 5'000));
  ASSERT_EQ(replies.size(), 2U);
  for (const auto& reply : replies) {
    EXPECT_EQ(outcome_of(reply).code, Code::kMismatch);
    EXPECT_THAT(outcome_of(reply).text,
                HasSubstr("as rank 0: pid 100 of user 7 on node n1 and pid 200 of user 7 on node n2"));
  }
  EXPECT_EQ(rendezvous.open_groups(), 0U);
}

// Two jobs that nothing distinguishes: which of the two ranks 1 was taken by mistake cannot be known.
TEST(RendezvousTest, AFurtherProcessAtTheAddressFailsAGroupThatIsBeingConnected) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join_at_address(2, 0, 1, 5'000));
  rendezvous.on_join(11, join_at_address(2, 1, 2, 5'000));
  std::vector<Rendezvous::Reply> made;
  const Deadline limit = Deadline::after_ms(5'000);
  while (made.empty() && !limit.expired()) made = rendezvous.on_time();
  ASSERT_EQ(made.size(), 2U);
  const auto replies = rendezvous.on_join(12, join_at_address(2, 1, 3, 5'000));
  ASSERT_EQ(replies.size(), 3U);
  for (const auto& reply : replies) EXPECT_NE(outcome_of(reply).code, Code::kSuccess);
  EXPECT_EQ(rendezvous.open_groups(), 0U);
}

// So that two jobs which start together are found to be two before either has computed anything.
TEST(RendezvousTest, AtAnAddressAGroupWaitsForAFurtherProcess) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join_at_address(2, 0, 1, 5'000));
  EXPECT_TRUE(rendezvous.on_join(11, join_at_address(2, 1, 2, 5'000)).empty());
  EXPECT_TRUE(rendezvous.on_time().empty());
  ASSERT_TRUE(rendezvous.next_time().has_value());
  const auto replies = rendezvous.on_join(12, join_at_address(2, 0, 3, 5'000));
  ASSERT_EQ(replies.size(), 3U);
  for (const auto& reply : replies) EXPECT_EQ(outcome_of(reply).code, Code::kMismatch);
}

// The missing ranks are logged then.
TEST(RendezvousTest, LooksEveryTenSecondsForRanksThatAreMissing) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join_at_address(2, 0, 1, 500'000));
  ASSERT_TRUE(rendezvous.next_time().has_value());
  EXPECT_LE(rendezvous.next_time()->remaining_ns(), 10 * kNsPerSecond);
}

TEST(RendezvousTest, ASecretIsDrawnForEveryGroup) {
  Rendezvous rendezvous;
  std::vector<GroupKey> secrets;
  for (const std::byte key : {std::byte{1}, std::byte{2}}) {
    Join alone = join(1, 0, 1);
    alone.key[0] = key;
    const auto replies = rendezvous.on_join(10, alone);
    ASSERT_EQ(replies.size(), 1U);
    secrets.push_back(std::get<Membership>(replies[0].message).secret);
    EXPECT_NE(secrets.back(), GroupKey{});
  }
  EXPECT_NE(secrets[0], secrets[1]);
}

TEST(RendezvousTest, ANodeThatSucceededMayCloseWhileOthersStillConnect) {
  Rendezvous rendezvous;
  rendezvous.on_join(10, join(2, 0, 1));
  rendezvous.on_join(11, join(2, 1, 2));
  rendezvous.on_outcome(10, Outcome{});
  EXPECT_TRUE(rendezvous.on_closed(10).empty());
  EXPECT_EQ(rendezvous.open_groups(), 1U);
}

}  // namespace
}  // namespace hdt::daemon
