// rate_meter_test.cc: the rate of a rail and the window that follows from it, where acknowledgements come
// late now and then although the rail is as fast as before: the other end had no processor for a while.
#include "transports/link/rate_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/clock.h"

namespace hdt::transport {
namespace {

constexpr double kNsPerByte = 16;  // 500 Mbit/s
constexpr uint64_t kFragment = 32 << 10;

// A sender that always has something to send, over a rail of this rate; returns the share of the rate that
// was carried.
template <class Delay>
double carried(int64_t duration, Delay delay_at) {
  struct Fragment {
    int64_t handed_over, acknowledged;
  };
  RateMeter meter;
  std::deque<Fragment> under_way;
  int64_t free_at = 0;  // when the rail is done with what it has
  uint64_t bytes = 0;
  for (int64_t now = 0; now < duration; now += kNsPerMs / 100) {
    while (!under_way.empty() && under_way.front().acknowledged <= now) {
      meter.acknowledged(kFragment, under_way.front().handed_over, now);
      under_way.pop_front();
      bytes += kFragment;
    }
    while (under_way.size() * kFragment < window_of(meter.best_ns_per_byte())) {
      free_at = std::max(free_at, now) + static_cast<int64_t>(kFragment * kNsPerByte);
      const int64_t earlier = under_way.empty() ? 0 : under_way.back().acknowledged;
      under_way.push_back({now, std::max(earlier, free_at + delay_at(free_at))});
    }
  }
  return static_cast<double>(bytes) * kNsPerByte / static_cast<double>(duration);
}

TEST(RateMeter, TheWindowKeepsARailBusyWhileAcknowledgementsAreSoon) {
  EXPECT_GT(carried(1000 * kNsPerMs, [](int64_t) { return kNsPerMs / 2; }), 0.97);
}

// Half of the time acknowledgements take 3 ms, more than the window holds: what is carried then is two thirds
// at most. A window by the rate that is seen then shrinks with it, to its least.
TEST(RateMeter, LateAcknowledgementsDoNotShrinkTheWindowMoreAndMore) {
  const double share = carried(2000 * kNsPerMs, [](int64_t at) {
    return at / (20 * kNsPerMs) % 2 == 0 ? kNsPerMs / 2 : 3 * kNsPerMs;
  });
  EXPECT_GT(share, 0.77);
}

TEST(RateMeter, ARailThatBecameSlowIsKnownAsSlowAfterFourFigures) {
  RateMeter meter;
  int64_t now = 0;
  const auto carry = [&](double ns_per_byte, int64_t duration) {
    const auto each = static_cast<int64_t>(kFragment * ns_per_byte);
    for (const int64_t end = now + duration; now < end; now += each)
      meter.acknowledged(kFragment, now, now + each);
  };
  EXPECT_EQ(meter.best_ns_per_byte(), 0);
  carry(kNsPerByte, 100 * kNsPerMs);
  EXPECT_NEAR(meter.best_ns_per_byte(), kNsPerByte, 0.1);
  carry(10 * kNsPerByte, 40 * kNsPerMs);
  EXPECT_NEAR(meter.best_ns_per_byte(), kNsPerByte, 0.1);  // it may be a pause
  carry(10 * kNsPerByte, 80 * kNsPerMs);
  EXPECT_NEAR(meter.best_ns_per_byte(), 10 * kNsPerByte, 0.1);
}

// Acknowledgements that stand in a long queue come in bursts: each 100 ms those of 100 ms, within 25.
TEST(RateMeter, ABurstOfAcknowledgementsThatTookLongIsNoFastRail) {
  constexpr int64_t kRoundNs = 250 * kNsPerMs;
  constexpr int64_t kBurstEveryNs = 100 * kNsPerMs;
  constexpr auto kFragments = static_cast<int>(kBurstEveryNs / (kFragment * kNsPerByte));
  RateMeter meter;
  for (int64_t burst = 0; burst < 20; ++burst) {
    for (int i = 0; i < kFragments; ++i) {
      const int64_t now = kRoundNs + burst * kBurstEveryNs + i * (kBurstEveryNs / 4 / kFragments);
      meter.acknowledged(kFragment, now - kRoundNs, now);
    }
    if (burst >= 4) {
      EXPECT_GT(meter.best_ns_per_byte(), 0.7 * kNsPerByte) << "burst " << burst;
    }
  }
}

}  // namespace
}  // namespace hdt::transport
