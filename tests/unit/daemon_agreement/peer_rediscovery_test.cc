// peer_rediscovery_test.cc: a daemon that was started again tells the other nodes so until their groups work
// with it.
#include "daemon/membership/peer_rediscovery.h"

#include <gtest/gtest.h>

#include <vector>

namespace hdt::daemon {
namespace {

class PeerRediscoveryTest : public ::testing::Test, protected Channels, protected PeerRediscoveryUser {
 protected:
  ChannelId dial(const std::string& address, std::optional<bool>) override {
    dialled_.push_back(address);
    return static_cast<ChannelId>(dialled_.size());
  }
  void send(ChannelId channel, const ControlMessage& message) override {
    sent_.emplace_back(channel, std::get<Successor>(message));
  }
  void finish(ChannelId) override {}
  void give_up(ChannelId) override {}
  void met(const Successor&, const SuccessorReply& answer) override { met_.push_back(answer); }
  void failed(const SuccessorReply& answer) override { failed_.push_back(answer); }
  void newer(const Successor&, const SuccessorReply& answer) override { newer_.push_back(answer); }

  static constexpr int64_t kWaitMs = 10'000;
  std::vector<std::string> dialled_;
  std::vector<std::pair<ChannelId, Successor>> sent_;
  std::vector<SuccessorReply> met_, failed_, newer_;
  PeerRediscovery rediscovery_{*this, *this};

  static Successor word(uint64_t group, uint32_t to) { return {group, 0, to, "", {}, {}}; }
  static SuccessorReply answer(uint64_t group, uint32_t to, Code code) {
    return {group, 0, to, code, -1, "", {}, {}};
  }
  // True if something more was said within the time.
  bool says_more() {
    const size_t before = sent_.size();
    const Deadline until = Deadline::after_ms(kWaitMs);
    while (sent_.size() == before && rediscovery_.next_time() && !until.expired()) rediscovery_.on_time();
    return sent_.size() > before;
  }
};

TEST_F(PeerRediscoveryTest, SaysItAgainUntilTheGroupWorks) {
  rediscovery_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  EXPECT_EQ(sent_.size(), 1U);
  rediscovery_.on_successor_reply(1, answer(1, 2, Code::kInProgress));
  EXPECT_TRUE(met_.empty());
  EXPECT_TRUE(says_more());
  rediscovery_.on_successor_reply(1, answer(1, 2, Code::kSuccess));
  EXPECT_EQ(met_.size(), 1U);
  EXPECT_TRUE(says_more()) << "the link may still fail";
  rediscovery_.end(1, 2);
  EXPECT_FALSE(rediscovery_.next_time());
  EXPECT_EQ(dialled_, std::vector<std::string>{"a:1"});
}

TEST_F(PeerRediscoveryTest, DialsAgainWhenTheConnectionEnds) {
  rediscovery_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  rediscovery_.begin(word(3, 2), "a:1", Deadline::after_ms(kWaitMs));
  EXPECT_EQ(dialled_.size(), 1U);
  rediscovery_.on_closed(1);
  EXPECT_TRUE(says_more());
  EXPECT_EQ(dialled_.size(), 2U);
  EXPECT_EQ(sent_.back().first, 2U);
}

TEST_F(PeerRediscoveryTest, AGroupThatDoesNotGoOnIsNotAskedForAnyMore) {
  rediscovery_.begin(word(1, 1), "a:1", Deadline::after_ms(kWaitMs));
  rediscovery_.begin(word(1, 2), "b:1", Deadline::after_ms(kWaitMs));
  rediscovery_.begin(word(7, 2), "b:1", Deadline::after_ms(kWaitMs));
  rediscovery_.on_successor_reply(2, answer(1, 2, Code::kRankLost));
  EXPECT_EQ(failed_.size(), 1U);
  rediscovery_.on_successor_reply(1, answer(1, 1, Code::kSuccess));
  EXPECT_TRUE(met_.empty());
  rediscovery_.end(7, 2);
  EXPECT_FALSE(rediscovery_.next_time());
}

// Only of the newest settings of a class two nodes come to the same ends.
TEST_F(PeerRediscoveryTest, ToldOfNewerSettingsOfTheClassItSaysItAgainWithThose) {
  rediscovery_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  SuccessorReply known = answer(1, 2, Code::kInProgress);
  rediscovery_.on_successor_reply(1, known);
  EXPECT_TRUE(newer_.empty()) << "they are the same";
  known.live = {3, "class.dp.weight=2"};
  rediscovery_.on_successor_reply(1, known);
  ASSERT_EQ(newer_.size(), 1U);
  rediscovery_.refresh([&](Successor& said) { said.live = known.live; });
  EXPECT_TRUE(says_more());
  EXPECT_EQ(sent_.back().second.live, known.live);
  rediscovery_.on_successor_reply(1, known);
  known.live = {2, "class.dp.weight=9"};
  rediscovery_.on_successor_reply(1, known);
  EXPECT_EQ(newer_.size(), 1U);
  EXPECT_TRUE(met_.empty());
}

// Any daemon knows the ids of groups that it is in, and could speak for nodes that it is not.
TEST_F(PeerRediscoveryTest, NobodyAnswersForTheNodeThatWasAsked) {
  rediscovery_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  rediscovery_.begin(word(3, 2), "b:1", Deadline::after_ms(kWaitMs));
  rediscovery_.on_successor_reply(2, answer(1, 2, Code::kRankLost));
  rediscovery_.on_successor_reply(77, answer(1, 2, Code::kSuccess));
  SuccessorReply other = answer(1, 2, Code::kRankLost);
  other.from = 1;
  rediscovery_.on_successor_reply(1, other);
  EXPECT_TRUE(failed_.empty());
  EXPECT_TRUE(met_.empty());
  rediscovery_.on_successor_reply(1, answer(1, 2, Code::kSuccess));
  EXPECT_EQ(met_.size(), 1U);
}

TEST_F(PeerRediscoveryTest, EndsAtTheDeadline) {
  rediscovery_.begin(word(1, 2), "a:1", Deadline::after_ms(0));
  rediscovery_.on_time();
  EXPECT_FALSE(rediscovery_.next_time());
}

}  // namespace
}  // namespace hdt::daemon
