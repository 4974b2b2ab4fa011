// rails_test.cc: which NICs are paired, and when a lost rail is dialled again.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/nics.h"
#include "daemon/peer_link.h"

namespace hdt::daemon {
namespace {

using Pairs = std::vector<std::pair<size_t, size_t>>;

std::vector<transport::DeviceInfo> devices(const std::vector<std::string>& addresses, uint32_t prefix_bits) {
  std::vector<transport::DeviceInfo> list;
  for (const auto& address : addresses) {
    auto& info = list.emplace_back();
    info.address = address;
    info.prefix_bits = prefix_bits;
  }
  return list;
}

TEST(PairNics, InOneSubnetTheSideWithFewerIsSharedEvenly) {
  const auto two = devices({"10.0.0.1", "10.0.0.2"}, 24);
  EXPECT_EQ(pair_nics(two, {"10.0.0.5:1", "10.0.0.6:1", "10.0.0.7:1", "10.0.0.8:1"}),
            (Pairs{{0, 0}, {1, 1}, {0, 2}, {1, 3}}));
  EXPECT_EQ(pair_nics(two, {"10.0.0.5:1"}), (Pairs{{0, 0}, {1, 0}}));
}

TEST(PairNics, WithinTheSubnetWhateverTheOrder) {
  const auto ours = devices({"10.1.0.1", "10.2.0.1", "10.3.0.1"}, 16);
  EXPECT_EQ(pair_nics(ours, {"10.3.9.2:1", "10.1.9.2:1", "10.2.9.2:1"}), (Pairs{{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_EQ(pair_nics(devices({"fd00:1::1", "fd00:2::1"}, 64), {"[fd00:2::2]:1", "[fd00:1::2]:1"}),
            (Pairs{{0, 1}, {1, 0}}));
}

TEST(PairNics, NoneWithoutAddresses) { EXPECT_TRUE(pair_nics(devices({"10.0.0.1"}, 24), {}).empty()); }

TEST(RailPath, AttemptsGoOnForEverAndOftenEnough) {
  RailPath path;
  int64_t now = 0;
  for (int attempt = 0; attempt < 100; ++attempt) {
    path.schedule(now);
    EXPECT_LE(path.dial_at.time_ns() - now, 400 * kNsPerMs);
    now = path.dial_at.time_ns();
  }
}

TEST(RailPath, OneThatFlapsIsHeldBackLongerEachTime) {
  RailPath path;
  int64_t now = 0;
  int64_t held_back = 0;
  for (int loss = 0; loss < 20; ++loss) {
    path.up = true;
    path.up_ns = now;
    now += 100 * kNsPerMs;
    path.schedule(now);
    const int64_t delay = path.dial_at.time_ns() - now;
    EXPECT_GE(delay, std::min(2 * held_back, 30 * kNsPerSecond));
    EXPECT_GT(delay, 0);
    held_back = delay;
  }
  EXPECT_EQ(held_back, 30 * kNsPerSecond);
  path.up = true;
  path.up_ns = now;
  now += 5 * kNsPerSecond;
  path.schedule(now);
  EXPECT_EQ(path.dial_at.time_ns(), now) << "it was stable: dialled at once";
}

}  // namespace
}  // namespace hdt::daemon
