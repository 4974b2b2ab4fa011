// reunion_test.cc: a daemon that was started again tells the other nodes so until their groups work with it.
#include "daemon/membership/reunion.h"

#include <gtest/gtest.h>

#include <vector>

namespace hdt::daemon {
namespace {

class ReunionTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWaitMs = 10'000;
  std::vector<std::string> dialled_;
  std::vector<std::pair<ChannelId, Successor>> sent_;
  std::vector<Known> met_, failed_, newer_;
  Reunion reunion_{{[this](const std::string& address) {
                      dialled_.push_back(address);
                      return static_cast<ChannelId>(dialled_.size());
                    },
                    [this](ChannelId channel, const ControlMessage& message) {
                      sent_.emplace_back(channel, std::get<Successor>(message));
                    },
                    [this](const Successor&, const Known& known) { met_.push_back(known); },
                    [this](const Known& known) { failed_.push_back(known); },
                    [this](const Successor&, const Known& known) { newer_.push_back(known); }}};

  static Successor word(uint64_t group, uint32_t to) { return {group, 0, to, "", {}, {}}; }
  static Known answer(uint64_t group, uint32_t to, Code code) { return {group, 0, to, code, -1, "", {}, {}}; }
  // True if something more was said within the time.
  bool says_more() {
    const size_t before = sent_.size();
    const Deadline until = Deadline::after_ms(kWaitMs);
    while (sent_.size() == before && reunion_.next_time() && !until.expired()) reunion_.on_time();
    return sent_.size() > before;
  }
};

TEST_F(ReunionTest, SaysItAgainUntilTheGroupWorks) {
  reunion_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  EXPECT_EQ(sent_.size(), 1U);
  reunion_.on_known(1, answer(1, 2, Code::kInProgress));
  EXPECT_TRUE(met_.empty());
  EXPECT_TRUE(says_more());
  reunion_.on_known(1, answer(1, 2, Code::kSuccess));
  EXPECT_EQ(met_.size(), 1U);
  EXPECT_TRUE(says_more()) << "the link may still fail";
  reunion_.end(1, 2);
  EXPECT_FALSE(reunion_.next_time());
  EXPECT_EQ(dialled_, std::vector<std::string>{"a:1"});
}

TEST_F(ReunionTest, DialsAgainWhenTheConnectionEnds) {
  reunion_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  reunion_.begin(word(3, 2), "a:1", Deadline::after_ms(kWaitMs));
  EXPECT_EQ(dialled_.size(), 1U);
  reunion_.on_closed(1);
  EXPECT_TRUE(says_more());
  EXPECT_EQ(dialled_.size(), 2U);
  EXPECT_EQ(sent_.back().first, 2U);
}

TEST_F(ReunionTest, AGroupThatDoesNotGoOnIsNotAskedForAnyMore) {
  reunion_.begin(word(1, 1), "a:1", Deadline::after_ms(kWaitMs));
  reunion_.begin(word(1, 2), "b:1", Deadline::after_ms(kWaitMs));
  reunion_.begin(word(7, 2), "b:1", Deadline::after_ms(kWaitMs));
  reunion_.on_known(2, answer(1, 2, Code::kRankLost));
  EXPECT_EQ(failed_.size(), 1U);
  reunion_.on_known(1, answer(1, 1, Code::kSuccess));
  EXPECT_TRUE(met_.empty());
  reunion_.end(7, 2);
  EXPECT_FALSE(reunion_.next_time());
}

// Only of the newest settings of a class two nodes come to the same ends.
TEST_F(ReunionTest, ToldOfNewerSettingsOfTheClassItSaysItAgainWithThose) {
  reunion_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  Known known = answer(1, 2, Code::kInProgress);
  reunion_.on_known(1, known);
  EXPECT_TRUE(newer_.empty()) << "they are the same";
  known.live = {3, "class.dp.weight=2"};
  reunion_.on_known(1, known);
  ASSERT_EQ(newer_.size(), 1U);
  reunion_.refresh([&](Successor& said) { said.live = known.live; });
  EXPECT_TRUE(says_more());
  EXPECT_EQ(sent_.back().second.live, known.live);
  reunion_.on_known(1, known);
  known.live = {2, "class.dp.weight=9"};
  reunion_.on_known(1, known);
  EXPECT_EQ(newer_.size(), 1U);
  EXPECT_TRUE(met_.empty());
}

// Any daemon knows the ids of groups that it is in, and could speak for nodes that it is not.
TEST_F(ReunionTest, NobodyAnswersForTheNodeThatWasAsked) {
  reunion_.begin(word(1, 2), "a:1", Deadline::after_ms(kWaitMs));
  reunion_.begin(word(3, 2), "b:1", Deadline::after_ms(kWaitMs));
  reunion_.on_known(2, answer(1, 2, Code::kRankLost));
  reunion_.on_known(77, answer(1, 2, Code::kSuccess));
  Known other = answer(1, 2, Code::kRankLost);
  other.from = 1;
  reunion_.on_known(1, other);
  EXPECT_TRUE(failed_.empty());
  EXPECT_TRUE(met_.empty());
  reunion_.on_known(1, answer(1, 2, Code::kSuccess));
  EXPECT_EQ(met_.size(), 1U);
}

TEST_F(ReunionTest, EndsAtTheDeadline) {
  reunion_.begin(word(1, 2), "a:1", Deadline::after_ms(0));
  reunion_.on_time();
  EXPECT_FALSE(reunion_.next_time());
}

}  // namespace
}  // namespace hdt::daemon
