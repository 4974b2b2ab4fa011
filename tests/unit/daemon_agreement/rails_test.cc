// rails_test.cc: which NICs are paired, and when a lost rail is dialled again.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/links/nics.h"
#include "daemon/links/peer_link.h"

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

std::vector<RailEnd> ends(const std::vector<std::string>& addresses) {
  std::vector<RailEnd> list;
  for (const auto& address : addresses) list.push_back({"tcp", "", address});
  return list;
}

// "eth0 10.0.0.1/24"
transport::DeviceInfo nic(const std::string& text) {
  transport::DeviceInfo info;
  const size_t space = text.find(' '), slash = text.find('/');
  info.name = text.substr(0, space);
  info.address = text.substr(space + 1, slash - space - 1);
  info.prefix_bits = static_cast<uint32_t>(std::stoul(text.substr(slash + 1)));
  return info;
}

// "eth0 10.0.0.1:1"
RailEnd end_of(const std::string& text) {
  return {"tcp", text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
}

RailPlan plan(const std::vector<std::string>& ours, const std::vector<std::string>& theirs,
              const std::vector<std::string>& own_besides = {}) {
  std::vector<transport::DeviceInfo> devices;
  std::vector<std::string> own = own_besides;
  for (const auto& text : ours) own.push_back(devices.emplace_back(nic(text)).address);
  std::vector<RailEnd> ends;
  for (const auto& text : theirs) ends.push_back(end_of(text));
  return pair_nics(devices, ends, transport::OwnAddresses(own));
}

TEST(PairNics, InOneSubnetTheSideWithFewerIsSharedEvenly) {
  const auto two = devices({"10.0.0.1", "10.0.0.2"}, 24);
  const transport::OwnAddresses own;
  EXPECT_EQ(pair_nics(two, ends({"10.0.0.5:1", "10.0.0.6:1", "10.0.0.7:1", "10.0.0.8:1"}), own).rails,
            (Pairs{{0, 0}, {1, 1}, {0, 2}, {1, 3}}));
  EXPECT_EQ(pair_nics(two, ends({"10.0.0.5:1"}), own).rails, (Pairs{{0, 0}, {1, 0}}));
}

TEST(PairNics, WithinTheSubnetWhateverTheOrder) {
  const auto ours = devices({"10.1.0.1", "10.2.0.1", "10.3.0.1"}, 16);
  const transport::OwnAddresses own;
  EXPECT_EQ(pair_nics(ours, ends({"10.3.9.2:1", "10.1.9.2:1", "10.2.9.2:1"}), own).rails,
            (Pairs{{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_EQ(
      pair_nics(devices({"fd00:1::1", "fd00:2::1"}, 64), ends({"[fd00:2::2]:1", "[fd00:1::2]:1"}), own).rails,
      (Pairs{{0, 1}, {1, 0}}));
}

TEST(PairNics, NoneWithoutAddresses) {
  const RailPlan none = pair_nics(devices({"10.0.0.1"}, 24), {}, transport::OwnAddresses());
  EXPECT_TRUE(none.rails.empty());
  EXPECT_TRUE(none.spares.empty());
}

// BMC NICs, bridges of containers, local name servers.
TEST(PairNics, AnAddressOfThisHostLeadsToNoOtherHost) {
  for (const bool first : {true, false}) {
    const std::vector<std::string> ours =
        first ? std::vector<std::string>{"usb0 169.254.3.1/24", "eth0 10.9.0.1/24"}
              : std::vector<std::string>{"eth0 10.9.0.1/24", "usb0 169.254.3.1/24"};
    const size_t usb = first ? 0 : 1;
    const RailPlan same = plan(ours, {"usb0 169.254.3.1:1", "eth0 10.9.0.2:1"});
    EXPECT_EQ(same.rails, (Pairs{{1 - usb, 1}}));
    EXPECT_EQ(same.spares.size(), 3);
    // Nor does it take the place of a NIC that leads somewhere.
    const RailPlan more = plan(ours, {"usb0 169.254.3.1:1", "eth0 10.9.0.2:1", "eth1 10.9.0.3:1"});
    EXPECT_EQ(more.rails, (Pairs{{1 - usb, 1}, {1 - usb, 2}}));
  }
  // One that HDT does not use here.
  EXPECT_EQ(
      plan({"eth0 10.9.0.1/24"}, {"dummy0 169.254.20.10:1", "eth0 10.9.0.2:1"}, {"169.254.20.10"}).rails,
      (Pairs{{0, 1}}));
}

TEST(PairNics, DaemonsOnOneHostReachEachOther) {
  EXPECT_EQ(plan({"eth0 10.9.0.1/24", "eth1 10.8.0.1/24"}, {"eth0 10.9.0.1:2", "eth1 10.8.0.1:2"}).rails,
            (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(plan({"lo 127.0.1.1/8", "lo 127.0.2.1/8"}, {"lo 127.0.1.2:2", "lo 127.0.2.2:2"}).rails,
            (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(plan({"eth0 10.9.0.1/24"}, {"lo 127.0.1.2:2"}).rails, (Pairs{{0, 0}}));
}

TEST(PairNics, WhereNothingLeadsThereAllIsTried) {
  const RailPlan nowhere =
      plan({"usb0 169.254.3.1/24"}, {"usb0 169.254.3.1:1", "usb1 169.254.4.1:1"}, {"169.254.4.1"});
  EXPECT_EQ(nowhere.rails.size(), 2);  // they are of this host, so it may be that the other daemon is
  const RailPlan other = plan({"usb0 169.254.3.1/24"}, {"usb0 169.254.3.1:1", "eth0 10.0.0.1:1"});
  EXPECT_EQ(other.rails.size(), 2);
  EXPECT_TRUE(other.spares.empty());
}

TEST(PairNics, TwoAddressesOfANicAreOneNic) {
  const RailPlan both =
      plan({"eth0 10.1.0.1/24", "eth0 10.2.0.1/24"}, {"eth0 10.1.0.2:1", "eth0 10.2.0.2:1"});
  EXPECT_EQ(both.rails, (Pairs{{0, 0}}));
  EXPECT_EQ(both.spares, (Pairs{{1, 1}, {0, 1}, {1, 0}}));
  // The one that fits is taken, whatever the order and the labels.
  EXPECT_EQ(plan({"eth0 10.1.0.1/24", "eth0:1 10.2.0.1/24"}, {"eth5 10.2.0.2:1"}).rails, (Pairs{{1, 0}}));
  EXPECT_EQ(plan({"eth0 10.9.0.100/32", "eth0 10.9.0.1/24", "eth1 10.8.0.1/24"},
                 {"eth0 10.9.0.2:1", "eth1 10.8.0.2:1", "eth1 10.8.0.200:1"})
                .rails,
            (Pairs{{1, 0}, {2, 1}}));
}

TEST(PairNics, FamiliesAreNotMixed) {
  const RailPlan mixed =
      plan({"eth0 10.1.0.1/24", "eth1 fd00::1/64"}, {"eth1 [fd00::2]:1", "eth0 10.1.0.2:1"});
  EXPECT_EQ(mixed.rails, (Pairs{{0, 1}, {1, 0}}));
  EXPECT_TRUE(mixed.spares.empty());
  EXPECT_TRUE(plan({"eth0 10.1.0.1/24"}, {"eth0 [fd00::2]:1"}).rails.empty());
}

TEST(PairNics, NoMoreThanSoMany) {
  std::vector<std::string> ours, theirs;
  for (int i = 0; i < 20; ++i) {
    ours.push_back("eth" + std::to_string(i) + " 10.1.0." + std::to_string(i + 1) + "/24");
    theirs.push_back("eth" + std::to_string(i) + " 10.1.0." + std::to_string(i + 101) + ":1");
  }
  const RailPlan many = plan(ours, theirs);
  EXPECT_EQ(many.rails.size(), 20);
  EXPECT_EQ(many.rails.size() + many.spares.size(), kMostPaths);
}

TEST(RailPath, OneThatLeadsElsewhereIsTriedSeldom) {
  RailPath path;
  int64_t now = 0;
  int attempts = 0;
  for (; now < 300 * kNsPerSecond; ++attempts) {
    path.schedule(now, true);
    EXPECT_GE(path.dial_at.time_ns() - now, kNsPerSecond);
    now = path.dial_at.time_ns();
  }
  EXPECT_LE(attempts, 15);
  EXPECT_GE(attempts, 10);
}

TEST(PeerLink, SaysWhyEachPathFailedAndNoMoreThanFits) {
  struct Silent : transport::LinkObserver {
    void on_sent(transport::Link&, uint64_t) override {}
    void on_arrived(transport::Link&, const transport::LinkHeader&, uint64_t) override {}
    void on_message(transport::Link&, std::span<const std::byte>) override {}
    void on_down(transport::Link&, const Status&) override {}
  } observer;
  PeerLink peer({}, "b", 0, "default", observer, {});
  const auto add = [&](const std::string& ours, const std::string& theirs, const std::string& failure) {
    RailPath& path = peer.paths.emplace_back();
    path.pair.ours = end_of(ours);
    path.pair.theirs = end_of(theirs);
    path.failure = failure;
  };
  add("usb0 169.254.3.1:9", "usb0 169.254.3.1:4", "this node answers there itself");
  add("eth0 10.0.0.1:9", "eth0 10.0.0.2:5", "no answer");
  add("eth1 10.1.0.1:9", "eth1 10.1.0.2:6", "no answer");
  EXPECT_EQ(peer.failures(),
            "usb0 169.254.3.1 - usb0 169.254.3.1:4: this node answers there itself; "
            "eth0 10.0.0.1 - eth0 10.0.0.2:5, eth1 10.1.0.1 - eth1 10.1.0.2:6: no answer");
  for (int i = 0; i < 50; ++i) add("eth1 10.1.0.1:9", "eth" + std::to_string(i) + " 10.1.0.2:6", "no answer");
  EXPECT_LE(peer.failures().size(), 350);
}

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
