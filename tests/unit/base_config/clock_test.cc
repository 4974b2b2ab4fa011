// clock_test.cc: deadlines saturate, round up, and tell when they have passed.
#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace hdt {
namespace {

TEST(Clock, NeverGoesBack) {
  int64_t last = now_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Deadline, PastOnesAreExpired) {
  for (const Deadline deadline : {Deadline::at_ns(0), Deadline::after_ms(0), Deadline::after_ms(-5)}) {
    EXPECT_TRUE(deadline.expired());
    EXPECT_EQ(deadline.remaining_ns(), 0);
    EXPECT_EQ(deadline.poll_timeout_ms(), 0);
  }
}

TEST(Deadline, FutureOnesAreNot) {
  const Deadline deadline = Deadline::after_ms(3'600'000);
  EXPECT_FALSE(deadline.expired());
  EXPECT_GT(deadline.remaining_ns(), 0);
  EXPECT_LE(deadline.remaining_ns(), 3'600 * kNsPerSecond);
  EXPECT_GT(deadline.poll_timeout_ms(), 0);
}

TEST(Deadline, ARemainderBelowAMillisecondIsWaitedFor) {
  const int64_t hour = 3'600 * kNsPerSecond;
  const Deadline deadline = Deadline::after_ns(hour);
  const int64_t before = deadline.remaining_ns();
  const int wait_ms = deadline.poll_timeout_ms();
  const int64_t after = deadline.remaining_ns();
  EXPECT_GE(int64_t{wait_ms} * kNsPerMs, after);
  EXPECT_LT(int64_t{wait_ms} * kNsPerMs, before + kNsPerMs);
}

TEST(Deadline, NeverAndHugeTimeoutsDoNotExpire) {
  for (const int64_t ms :
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max() / kNsPerMs}) {
    EXPECT_TRUE(Deadline::after_ms(ms).is_never());
  }
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_EQ(Deadline::never().poll_timeout_ms(), -1);
  EXPECT_EQ(Deadline::at_ns(std::numeric_limits<int64_t>::max() - 1).poll_timeout_ms(),
            std::numeric_limits<int>::max());
}

TEST(Deadline, EarlierPicksTheFirst) {
  EXPECT_EQ(Deadline::earlier(Deadline::never(), Deadline::at_ns(7)).time_ns(), 7);
  EXPECT_EQ(Deadline::earlier(Deadline::at_ns(3), Deadline::at_ns(7)).time_ns(), 3);
}

}  // namespace
}  // namespace hdt
