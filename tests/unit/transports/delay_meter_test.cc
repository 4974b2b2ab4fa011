// delay_meter_test.cc: what an acknowledgement waits for, told from what its fragment waited for; and two
// ends that send to each other all the time.
#include "transports/link/delay_meter.h"

#include <gtest/gtest.h>

#include <deque>

#include "transports/link/rate_meter.h"

namespace hdt::transport {
namespace {

// Two clocks that are this far apart, one of them about to run over.
constexpr int64_t kApartNs = 65'500 * kStampNs;

// Fragments one after another, each on its way for `way(now)`, its acknowledgement for `back`.
template <class Way>
DelayMeter after(int64_t duration, Way way, int64_t back, DelayMeter meter = {}, int64_t begin = 0) {
  for (int64_t now = begin; now < begin + duration; now += kNsPerMs) {
    const int64_t there = now + way(now);
    meter.known(now, stamp_of(there + kApartNs), there + back);
  }
  return meter;
}

TEST(DelayMeter, KnowsNothingAtFirst) { EXPECT_EQ(DelayMeter().rest_ns(), 0); }

TEST(DelayMeter, TheQueueOnTheWayDoesNotCount) {
  const auto way = [](int64_t now) { return kNsPerMs / 2 + (now / kNsPerMs % 7) * kNsPerMs; };
  const DelayMeter meter = after(500 * kNsPerMs, way, 2 * kNsPerMs);
  EXPECT_NEAR(static_cast<double>(meter.rest_ns()), 2.5 * kNsPerMs, 2 * kStampNs);
}

TEST(DelayMeter, TheWayBackCounts) {
  const auto way = [](int64_t) { return kNsPerMs / 2; };
  DelayMeter meter = after(500 * kNsPerMs, way, kNsPerMs);
  EXPECT_NEAR(static_cast<double>(meter.rest_ns()), 1.5 * kNsPerMs, 2 * kStampNs);
  meter = after(500 * kNsPerMs, way, 3 * kNsPerMs, meter, 500 * kNsPerMs);
  EXPECT_NEAR(static_cast<double>(meter.rest_ns()), 3.5 * kNsPerMs, 2 * kStampNs);
}

TEST(DelayMeter, APeerThatDoesNotRunGivesNoWindowWithoutEnd) {
  const auto way = [](int64_t) { return kNsPerMs / 2; };
  EXPECT_LE(after(1000 * kNsPerMs, way, 300 * kNsPerMs).rest_ns(), 8 * kNsPerMs);
}

// 50 ppm are much between clocks; a queue of 2 ms stands all the time, but for one moment in 4 s.
TEST(DelayMeter, ClocksMayDriftApart) {
  for (const int64_t ppm : {-50, 50}) {
    DelayMeter meter;
    for (int64_t now = 0; now < 120 * kNsPerSecond; now += kNsPerMs) {
      const int64_t there = now + kNsPerMs / 2 + (now / kNsPerMs % 4000 < 2 ? 0 : 2 * kNsPerMs);
      const int64_t drift = now / 1'000'000 * ppm;
      meter.known(now, stamp_of(there + drift), there + kNsPerMs);
    }
    EXPECT_NEAR(static_cast<double>(meter.rest_ns()), 1.5 * kNsPerMs, 0.5 * kNsPerMs) << ppm << " ppm";
  }
}

constexpr uint64_t kWireFragment = 32 << 10;
constexpr double kWireNsPerByte = 16;  // 500 Mbit/s
constexpr auto kWireFragmentNs = static_cast<int64_t>(kWireFragment * kWireNsPerByte);
constexpr int64_t kTickNs = kNsPerMs / 100;

// One end of a rail on which both send all the time: what it has handed over and what has come, acknowledged
// by its next fragment.
struct End {
  struct Fragment {
    int64_t there;
    bool data;  // else only an acknowledgement
    uint64_t received;
    Stamp received_at;
  };
  double window_scale = 1;
  bool by_delay = true;
  int64_t offset_ns = 0;  // of its clock
  RateMeter rate;
  DelayMeter delay;
  std::deque<Fragment> line;       // not there yet
  std::deque<int64_t> unanswered;  // when each was handed over
  int64_t free_at = 0;
  uint64_t received = 0, told = 0, acknowledged = 0;
  Stamp received_at = 0;

  void hand_over(int64_t now) {
    const double window =
        static_cast<double>(window_of(rate.best_ns_per_byte(), by_delay ? delay.rest_ns() : 0));
    while (static_cast<double>(unanswered.size() * kWireFragment) < window * window_scale) {
      free_at = std::max(free_at, now) + kWireFragmentNs;
      line.push_back({free_at, true, received, received_at});
      unanswered.push_back(now);
      told = received;
    }
    if (told != received) line.push_back({std::max(free_at, now), false, received, received_at});
    told = received;
  }

  void take_from(End& peer, int64_t now) {
    while (!peer.line.empty() && peer.line.front().there <= now) {
      const Fragment fragment = peer.line.front();
      peer.line.pop_front();
      if (fragment.data) {
        ++received;
        received_at = stamp_of(now + offset_ns);
      }
      const uint64_t fresh = fragment.received - acknowledged;
      if (fresh == 0) continue;
      delay.known(unanswered[fresh - 1], fragment.received_at, now);
      rate.acknowledged(fresh * kWireFragment, unanswered.front(), now);
      unanswered.erase(unanswered.begin(), unanswered.begin() + static_cast<int64_t>(fresh));
      acknowledged = fragment.received;
    }
  }
};

// The share of its rate that the end with the smaller window carries.
double carried_by_the_smaller(bool by_delay) {
  End small, large;
  large.window_scale = 1.3;
  small.by_delay = large.by_delay = by_delay;
  large.offset_ns = kApartNs;
  constexpr int64_t kDuration = 2000 * kNsPerMs;
  uint64_t before = 0;  // in the first half, when rates are not known yet
  for (int64_t now = 0; now < kDuration; now += kTickNs) {
    if (now == kDuration / 2) before = large.received;
    small.take_from(large, now);
    large.take_from(small, now);
    small.hand_over(now);
    large.hand_over(now);
  }
  return static_cast<double>((large.received - before) * kWireFragment) * kWireNsPerByte / (kDuration / 2.0);
}

TEST(DelayMeter, TheEndWithTheSmallerWindowIsNotStarved) {
  EXPECT_LT(carried_by_the_smaller(false), 0.9);
  EXPECT_GT(carried_by_the_smaller(true), 0.97);
}

}  // namespace
}  // namespace hdt::transport
