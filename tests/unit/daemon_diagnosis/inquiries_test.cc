// inquiries_test.cc: asking other daemons: clocks first, one answer for each, those that are silent or gone
// too.
#include "daemon/diagnosis/inquiries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>

namespace hdt::daemon {
namespace {

class InquiriesTest : public ::testing::Test, protected Channels {
 protected:
  ChannelId dial(const std::string&, std::optional<bool>) override { return next_channel_++; }
  void send(ChannelId channel, const ControlMessage& message) override {
    sent_.emplace_back(channel, std::get<Inquiry>(message));
  }
  void finish(ChannelId channel) override { finished_.push_back(channel); }
  void give_up(ChannelId) override {}

  // Answers everything that was asked of `channel` and of nobody else.
  void answer(ChannelId channel, int64_t offset_ns, const std::string& text) {
    for (bool any = true; std::exchange(any, false);) {
      for (auto it = sent_.begin(); it != sent_.end(); ++it) {
        if (it->first != channel) continue;
        const Inquiry inquiry = it->second;
        sent_.erase(it);
        clocks_ += inquiry.what == "clock" ? 1 : 0;
        inquiries_.on_reply(channel, {inquiry.number, Code::kSuccess, now_ns() + offset_ns, text});
        any = true;
        break;
      }
    }
  }
  void ask(const std::vector<std::string>& addresses, int64_t budget_ms = 60'000) {
    inquiries_.ask(addresses, "facts", Viewer{true, 0, {}}, budget_ms,
                   [this](std::vector<Answer> answers) { answers_ = std::move(answers); });
  }

  ChannelId next_channel_ = 1;
  int clocks_ = 0;
  std::deque<std::pair<ChannelId, Inquiry>> sent_;
  std::optional<std::vector<Answer>> answers_;
  std::vector<ChannelId> finished_;
  Inquiries inquiries_{*this};
};

TEST_F(InquiriesTest, NobodyToAskIsAnsweredAtOnce) {
  ask({});
  ASSERT_TRUE(answers_);
  EXPECT_TRUE(answers_->empty());
}

TEST_F(InquiriesTest, ClocksAreComparedFirst) {
  ask({"a", "b"});
  answer(2, 5'000 * kNsPerSecond, "two");
  EXPECT_FALSE(answers_);
  answer(1, 0, "one");
  ASSERT_TRUE(answers_);
  EXPECT_EQ((*answers_)[0].text, "one");
  EXPECT_EQ((*answers_)[1].text, "two");
  EXPECT_EQ(clocks_, 8);
  EXPECT_GE((*answers_)[1].round_trip_ns, 0);
  // Exact to half of the round trip.
  EXPECT_NEAR(static_cast<double>((*answers_)[1].offset_ns), 5e12,
              static_cast<double>((*answers_)[1].round_trip_ns));
}

TEST_F(InquiriesTest, ConnectionsAreKept) {
  for (int i = 0; i < 2; ++i) {
    ask({"a"});
    answer(1, 0, "one");
    ASSERT_TRUE(answers_);
    answers_.reset();
  }
  EXPECT_EQ(next_channel_, 2U);
  inquiries_.on_closed(1, {Code::kLink, "gone"});
  ask({"a"});
  EXPECT_EQ(next_channel_, 3U);
}

TEST_F(InquiriesTest, ConnectionsOnWhichNothingIsAskedEnd) {
  Inquiries hasty(*this, 0);
  bool told = false;
  const auto tell = [&](const std::vector<Answer>&) { told = true; };
  hasty.ask({"a", "silent"}, "facts", Viewer{true, 0, {}}, 60'000, tell);
  const auto to_a = [](const auto& sent) { return sent.first == 1; };
  for (auto it = sent_.begin(); (it = std::find_if(sent_.begin(), sent_.end(), to_a)) != sent_.end();) {
    const uint64_t number = it->second.number;
    sent_.erase(it);
    hasty.on_reply(1, {number, Code::kSuccess, now_ns(), "one"});
  }
  hasty.on_time();
  EXPECT_EQ(finished_, std::vector<ChannelId>{1}) << "something is asked of the other one";
  EXPECT_FALSE(told);
  hasty.ask({"a"}, "facts", Viewer{true, 0, {}}, 60'000, tell);
  EXPECT_EQ(next_channel_, 4U) << "dialled again";
}

TEST_F(InquiriesTest, WhoIsGoneAndWhoIsSilentAreTold) {
  ask({"gone", "silent", "refuses"}, 0);
  inquiries_.on_closed(1, {Code::kLink, "connection refused"});
  inquiries_.on_reply(3, {sent_.at(2).second.number, Code::kInvalidArgument, 0, "what?"});
  EXPECT_FALSE(answers_);
  ASSERT_TRUE(inquiries_.next_time());
  inquiries_.on_time();
  ASSERT_TRUE(answers_);
  EXPECT_EQ((*answers_)[0].status.message(), "connection refused");
  EXPECT_EQ((*answers_)[1].status.code(), Code::kTimeout);
  EXPECT_EQ((*answers_)[2].status.message(), "what?");
  EXPECT_TRUE(inquiries_.next_time()) << "connections rest";
}

TEST_F(InquiriesTest, RepliesOfAnotherConnectionAreNotBelieved) {
  ask({"a", "b"});
  inquiries_.on_reply(2, {sent_.at(0).second.number, Code::kInternal, 0, "not mine to answer"});
  answer(1, 0, "one");
  answer(2, 0, "two");
  ASSERT_TRUE(answers_);
  EXPECT_EQ((*answers_)[0].text, "one");
}

}  // namespace
}  // namespace hdt::daemon
