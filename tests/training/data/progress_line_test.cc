#include "training/data/progress_line.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <sstream>

namespace hdt::training {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ProgressLineTest : public ::testing::Test {
 protected:
  ProgressLine line(int64_t total, int64_t interval, bool in_place, size_t columns = 0) {
    return ProgressLine(out_, {.total_steps = total,
                               .log_interval = interval,
                               .in_place = in_place,
                               .columns = columns,
                               .clock = [this] { return now_; }});
  }
  void pass(milliseconds time) { now_ += time; }
  std::string printed() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }

  std::ostringstream out_;
  std::chrono::steady_clock::time_point now_{seconds(1000)};
};

TEST(ProgressFormat, NumbersAndDurations) {
  EXPECT_EQ(format_grouped(0), "0");
  EXPECT_EQ(format_grouped(999), "999");
  EXPECT_EQ(format_grouped(1000), "1,000");
  EXPECT_EQ(format_grouped(1234567), "1,234,567");
  EXPECT_EQ(format_grouped(-1234), "-1,234");
  EXPECT_EQ(format_grouped(-123), "-123");
  EXPECT_EQ(format_duration(milliseconds(400)), "0s");
  EXPECT_EQ(format_duration(milliseconds(59400)), "59s");
  EXPECT_EQ(format_duration(milliseconds(59600)), "1m 00s");
  EXPECT_EQ(format_duration(seconds(72)), "1m 12s");
  EXPECT_EQ(format_duration(seconds(3599)), "59m 59s");
  EXPECT_EQ(format_duration(seconds(7380)), "2h 03m");
  EXPECT_EQ(format_duration(seconds(-5)), "0s");
}

TEST(RateEstimate, ForgetsTheFirstStepAndFollowsChanges) {
  RateEstimate rate(seconds(10));
  EXPECT_FALSE(rate.tokens_per_second().has_value());
  rate.add(seconds(50), 100);
  EXPECT_DOUBLE_EQ(*rate.tokens_per_second(), 2);
  rate.add(seconds(1), 100);
  EXPECT_DOUBLE_EQ(*rate.tokens_per_second(), 100);
  EXPECT_DOUBLE_EQ(*rate.steps_per_second(), 1);
  // A second of 200 tokens after one of 100, which is 1 s = 1/10 of a half-life old.
  rate.add(seconds(1), 200);
  const double kept = std::pow(0.5, 0.1);
  EXPECT_NEAR(*rate.tokens_per_second(), (100 * kept + 200) / (kept + 1), 1e-9);
  for (int step = 0; step < 100; ++step) rate.add(seconds(1), 300);
  EXPECT_NEAR(*rate.tokens_per_second(), 300, 1);
}

TEST_F(ProgressLineTest, LinesPerInterval) {
  ProgressLine progress = line(600, 50, false);
  for (int64_t step = 1; step <= 600; ++step) {
    pass(step == 1 ? seconds(9) : milliseconds(150));
    progress.step_done(
        {.step = step, .loss = 2.3141, .tokens = 1263, .learning_rate = 3e-4, .gradient_norm = 0.8});
    const std::string text = printed();
    if (step == 1) {
      EXPECT_EQ(text, "step 1/600 | loss 2.314 | 140 tokens/s | 1h 29m left | lr 3.0e-04 | grad norm 0.80\n");
    } else if (step == 600) {
      EXPECT_EQ(text,
                "step 600/600 | loss 2.314 | 8,420 tokens/s | took 1m 39s | lr 3.0e-04 | grad norm 0.80\n");
    } else if (step == 120) {
      EXPECT_EQ(text, "");
    } else if (step == 150) {
      EXPECT_EQ(text,
                "step 150/600 | loss 2.314 | 8,420 tokens/s | 1m 08s left | lr 3.0e-04 | grad norm 0.80\n");
    } else {
      EXPECT_EQ(text.empty(), step % 50 != 0) << step;
    }
  }
  progress.finish();
  EXPECT_EQ(printed(), "");
  EXPECT_NEAR(*progress.tokens_per_second(), 8420, 1e-6);
}

TEST_F(ProgressLineTest, InPlaceWritesOverTheLine) {
  ProgressLine progress = line(100, 10, true);
  pass(seconds(1));
  progress.step_done({.step = 1, .loss = 123456.0, .tokens = 1000000});
  const std::string first = printed();
  EXPECT_EQ(first,
            "\rstep 1/100 | loss 1.23e+05 | 1,000,000 tokens/s | 1m 39s left | lr 0.0e+00 | grad norm 0.00");
  pass(seconds(1));
  progress.step_done({.step = 2, .loss = NAN, .tokens = 10, .gradient_norm = INFINITY});
  const std::string second = printed();
  const std::string text = "\rstep 2/100 | loss nan | 10 tokens/s | 1m 38s left | lr 0.0e+00 | grad norm inf";
  EXPECT_EQ(second, text + std::string(first.size() - text.size(), ' '));
  progress.finish();
  EXPECT_EQ(printed(), "\n");
  progress.finish();
  EXPECT_EQ(printed(), "");
}

TEST_F(ProgressLineTest, InPlaceNeverWraps) {
  ProgressLine progress = line(100, 10, true, 20);
  pass(seconds(1));
  progress.step_done({.step = 1, .loss = 5, .tokens = 10});
  EXPECT_EQ(printed(), "\rstep 1/100 | loss 5");
}

TEST_F(ProgressLineTest, ShowsWhereTheTimeGoesBeforeTheRates) {
  ProgressLine progress = line(2, 1, false);
  pass(seconds(1));
  progress.step_done({.step = 1, .loss = 5, .tokens = 10, .times = "compute 100 %"});
  EXPECT_EQ(printed(),
            "step 1/2 | loss 5.000 | 10 tokens/s | 1s left | compute 100 % | lr 0.0e+00 | grad norm 0.00\n");
}

TEST_F(ProgressLineTest, NoTimeNoRate) {
  ProgressLine progress = line(2, 1, false);
  progress.step_done({.step = 1, .loss = 5, .tokens = 10, .learning_rate = 1, .gradient_norm = 1});
  EXPECT_EQ(printed(), "step 1/2 | loss 5.000 | lr 1.0e+00 | grad norm 1.00\n");
}

TEST(Terminal, IsToldFromAPipe) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  int terminal = -1;
  int device = -1;
  const winsize size = {.ws_row = 24, .ws_col = 91, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&terminal, &device, nullptr, nullptr, &size), 0);
  ASSERT_EQ(::setenv("TERM", "xterm", 1), 0);
  EXPECT_FALSE(is_terminal(pipe_ends[1]));
  EXPECT_EQ(terminal_columns(pipe_ends[1]), 0u);
  EXPECT_TRUE(is_terminal(device));
  EXPECT_EQ(terminal_columns(device), 91u);
  ASSERT_EQ(::setenv("TERM", "dumb", 1), 0);
  EXPECT_FALSE(is_terminal(device));
  for (const int descriptor : {pipe_ends[0], pipe_ends[1], terminal, device}) ::close(descriptor);
}

}  // namespace
}  // namespace hdt::training
