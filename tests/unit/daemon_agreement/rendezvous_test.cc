// rendezvous_test.cc: the coordinator's bookkeeping, event by event.
#include "daemon/rendezvous.h"

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
  rendezvous.on_join(10, join(3, 0, 1));
  rendezvous.on_join(11, join(3, 1, 2));
  replies = rendezvous.on_cancel(Cancel{GroupKey{}, 1, "rank 1 ended"});
  EXPECT_EQ(replies.size(), 2U);
  EXPECT_EQ(rendezvous.open_groups(), 0U);
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
