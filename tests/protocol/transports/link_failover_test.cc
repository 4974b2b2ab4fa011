// link_failover_test.cc: rails that break, are cut, fall silent, corrupt, and come back while both ends write
// and send: everything comes exactly once, messages in order, memory reported sent is not read again, and
// memory that arrived is not written again.
#include <gmock/gmock.h>

#include <deque>
#include <iostream>
#include <random>

#include "tests/unit/transports/link_world.h"
#include "tests/unit/transports/random_bytes.h"
#include "transports/link/fragment.h"
#include "transports/link/notice.h"

namespace hdt::transport {

namespace {

using testing::HasSubstr;

// Random writes and messages of one side to the other, each checked when it comes.
class Traffic {
 public:
  Traffic(Side& from, Side& to, std::mt19937_64& random) : from_(from), to_(to), random_(random) {
    from_.when_sent = [this](uint64_t token) {
      // The memory is the sender's again: it puts something else there.
      std::fill(sources_[token].begin(), sources_[token].end(), std::byte{0xee});
      ++sent_;
    };
    to_.when_arrived = [this](Link&, uint64_t value) {
      ASSERT_LT(value, expected_.size());
      EXPECT_FALSE(arrived_[value]) << "write " << value << " came twice";
      arrived_[value] = true;
      EXPECT_TRUE(same_bytes(regions_[value], expected_[value]))
          << "write " << value << " came with other bytes";
      // The memory is in use for something newer from now on: nothing may be placed there again.
      expected_[value] = random_bytes(expected_[value].size(), random_());
      regions_[value] = expected_[value];
    };
  }

  void post(size_t most_bytes) {
    const size_t bytes = random_() % 3 == 0 ? random_() % 64 : random_() % most_bytes;
    const uint64_t value = expected_.size();
    expected_.push_back(random_bytes(bytes, random_()));
    sources_.push_back(expected_.back());
    regions_.emplace_back(bytes + 1).resize(bytes);
    arrived_.push_back(false);
    WriteRequest request{sources_.back().data(), bytes, {}, 0, header_of(value), value};
    if (bytes > 0) request.region = to_.enlist(regions_.back().data(), bytes);
    ASSERT_TRUE(from_.link.write(request).is_ok());
    if (random_() % 2 != 0) return;
    messages_.push_back(random_bytes(1 + random_() % 100, random_()));
    ASSERT_TRUE(from_.link.send(messages_.back()).is_ok());
  }

  bool done() const {
    return sent_ == expected_.size() && to_.messages.size() == messages_.size() &&
           std::all_of(arrived_.begin(), arrived_.end(), [](bool arrived) { return arrived; });
  }

  void check() const {
    EXPECT_EQ(to_.messages, messages_);
    EXPECT_EQ(from_.link.pending_writes(), 0u);
    for (size_t i = 0; i < regions_.size(); ++i)
      EXPECT_TRUE(same_bytes(regions_[i], expected_[i])) << "write " << i << " was placed again";
  }

 private:
  Side& from_;
  Side& to_;
  std::mt19937_64& random_;
  std::deque<std::vector<std::byte>> expected_;
  std::deque<std::vector<std::byte>> sources_;
  std::deque<std::vector<std::byte>> regions_;
  std::deque<bool> arrived_;
  std::vector<std::vector<std::byte>> messages_;
  size_t sent_ = 0;
};

const char* const kSideNames[] = {"a", "b"};

struct Mix {
  const char* name;
  bool cuts = false, breaks = false, blackholes = false, corruption = false, losses = false;
};
constexpr Mix kMixes[] = {{.name = "cuts", .cuts = true},
                          {.name = "breaks", .breaks = true},
                          {.name = "blackholes", .blackholes = true},
                          {.name = "corruption", .corruption = true},
                          {.name = "losses and cuts", .cuts = true, .losses = true},
                          {.name = "everything",
                           .cuts = true,
                           .breaks = true,
                           .blackholes = true,
                           .corruption = true,
                           .losses = true}};

// A counter of all rails of a side.
uint64_t sum_of(const Side& side, uint64_t RailStatus::*field) {
  uint64_t sum = 0;
  for (const RailStatus& rail : side.link.rails()) sum += rail.*field;
  return sum;
}

// Keeps rail 0 free of blackholes: without a rail that hears the peer nobody can tell a dead rail from a slow
// peer. What the faults did.
struct Damage {
  uint64_t losses = 0;
  uint64_t corrupted = 0;
};

void run_with_faults(const Mix& mix, uint64_t seed, Damage& damage) {
  SCOPED_TRACE(testing::Message() << mix.name << ", seed " << seed);
  std::mt19937_64 random(seed);
  constexpr int kRails = 3;
  LinkOptions options{
      .fragment_bytes = kMinFragmentBytes, .checksum = mix.corruption, .wait_ns = kNsPerSecond * 1000};
  LinkWorld world(seed, kRails, options);
  const auto set_faults = [&](int rail, bool blackhole) {
    for (const char* side : kSideNames) {
      fake::Faults faults;
      faults.bytes_per_poll = 5'000 + random() % 60'000;
      faults.max_delay_polls = static_cast<uint32_t>(random() % 4);
      faults.blackhole = blackhole;
      if (mix.losses && random() % 2 == 0) faults.lose_one_in = static_cast<uint32_t>(2 + random() % 30);
      if (mix.breaks && random() % 2 == 0) faults.fail_after_frames = 1 + random() % 60;
      if (mix.corruption && random() % 2 == 0)
        faults.corrupt_one_in = static_cast<uint32_t>(2 + random() % 30);
      world.network.set_faults(side + std::to_string(rail), faults);
    }
  };
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(kRails));
  Traffic there(world.a, world.b, random);
  Traffic back(world.b, world.a, random);
  int posted = 0;
  std::vector<int> dead_for(kRails);
  for (int round = 0; round < 4000 && !(posted == 150 && there.done() && back.done()); ++round) {
    if (posted < 150 && random() % 4 == 0) {
      there.post(200'000);
      back.post(200'000);
      ++posted;
    }
    const int rail = static_cast<int>(random() % kRails);
    const std::string end = kSideNames[random() % 2] + std::to_string(rail);
    if (mix.cuts && random() % 40 == 0) world.network.cut(end);
    if (random() % 30 == 0) set_faults(rail, mix.blackholes && rail > 0 && random() % 2 == 0);
    for (int i = 0; i < 3; ++i) world.poll();
    // Lost rails are dialled again after a while, as the engine does.
    for (int lost = 0; lost < kRails; ++lost) {
      const auto rails = world.a.link.rails();
      const bool up = std::any_of(rails.begin(), rails.end(), [&](const RailStatus& status) {
        return status.local_address.starts_with("a" + std::to_string(lost)) &&
               status.state != RailStatus::State::kDown;
      });
      dead_for[lost] = up ? 0 : dead_for[lost] + 1;
      if (dead_for[lost] < 10) continue;
      set_faults(lost, false);
      world.connect(lost);
      dead_for[lost] = 0;
    }
    ASSERT_FALSE(world.a.down || world.b.down) << (world.a.down ? *world.a.down : *world.b.down).to_string();
  }
  for (const Side* side : {&world.a, &world.b}) {
    damage.losses += sum_of(*side, &RailStatus::losses);
    damage.corrupted += sum_of(*side, &RailStatus::corrupted);
  }
  // Time for all to come where the last rails were lost late.
  for (int rail = 0; rail < kRails; ++rail) {
    for (const char* side : kSideNames) world.network.set_faults(side + std::to_string(rail), {});
    world.network.cut("a" + std::to_string(rail));
  }
  for (int i = 0; i < 20; ++i) world.poll();
  for (int rail = 0; rail < kRails; ++rail) world.connect(rail);
  ASSERT_TRUE(world.run_until([&] { return there.done() && back.done(); }));
  for (int i = 0; i < 50; ++i) world.poll();
  there.check();
  back.check();
}

// Nothing arrives on it any more, either way.
void swallow_all_on_rail_1(LinkWorld& world) {
  fake::Faults blackhole;
  blackhole.blackhole = true;
  for (const char* side : kSideNames) world.network.set_faults(side + std::string("1"), blackhole);
}

}  // namespace

TEST(LinkFailover, EverythingComesOnceWhateverRailsDo) {
  uint64_t first = 20261121;
  if (const char* given = std::getenv("HDT_TEST_SEED")) first = std::strtoull(given, nullptr, 10);
  std::cout << "seeds from " << first << "\n";
  for (const Mix& mix : kMixes) {
    Damage damage;
    for (uint64_t seed = first; seed < first + 4 && !testing::Test::HasFailure(); ++seed) {
      run_with_faults(mix, seed, damage);
    }
    EXPECT_GT(damage.losses, 0u) << "the faults of " << mix.name << " did nothing";
    if (mix.corruption) {
      EXPECT_GT(damage.corrupted, 0u);
    }
  }
}

// A backend that delivers twice, against its contract: the link ends and says so, and no write is reported
// twice.
TEST(LinkFailover, WhatComesTwiceEndsTheLinkAndIsReportedOnce) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  LinkWorld world(seed, 3);
  fake::Faults faults;
  faults.duplicate_one_in = 20;
  faults.max_delay_polls = 3;
  faults.bytes_per_poll = 50'000;
  world.network.set_faults(faults);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(3));
  Traffic there(world.a, world.b, random);  // fails the test if a write is reported twice
  for (int i = 0; i < 200; ++i) there.post(100'000);
  ASSERT_TRUE(world.run_until([&] { return world.b.down.has_value() || there.done(); }));
  ASSERT_TRUE(world.b.down.has_value()) << "nothing was duplicated";
  EXPECT_THAT(world.b.down->message(), HasSubstr("came twice"));
}

// Only what had not arrived is sent again, on the other rail.
TEST(LinkFailover, OnlyWhatWasLostIsSentAgain) {
  LinkWorld world(1, 2);
  fake::Faults slow;
  slow.bytes_per_poll = 4 * kMinFragmentBytes;
  world.network.set_faults(slow);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(2));
  std::vector<std::byte> source(4 << 20, std::byte{7});
  std::vector<std::byte> region(source.size());
  const RegionKey key = world.b.enlist(region.data(), region.size());
  ASSERT_TRUE(world.a.link.write({source.data(), source.size(), key, 0, header_of(0), 0}).is_ok());
  for (int i = 0; i < 10; ++i) world.poll();
  world.network.cut("a1");
  ASSERT_TRUE(world.run_until([&] { return world.b.arrived.size() == 1 && world.a.sent.size() == 1; }));
  EXPECT_TRUE(same_bytes(region, source));
  const uint64_t resent = sum_of(world.a, &RailStatus::bytes_resent);
  EXPECT_GT(resent, 0u);
  EXPECT_EQ(sum_of(world.b, &RailStatus::bytes_in), source.size()) << "each fragment counted once";
}

TEST(LinkFailover, ALinkWithoutRailsGoesOnWithTheNextOne) {
  LinkWorld world(3, 1);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(1));
  std::mt19937_64 random(3);
  Traffic there(world.a, world.b, random);
  Traffic back(world.b, world.a, random);
  for (int i = 0; i < 10; ++i) there.post(100'000), back.post(100'000);
  world.network.cut("b0");
  for (int i = 0; i < 30; ++i) world.poll();
  EXPECT_FALSE(world.a.link.up() || world.b.link.up());
  for (int i = 0; i < 10; ++i) there.post(100'000), back.post(100'000);
  world.connect(0);
  ASSERT_TRUE(world.run_until([&] { return there.done() && back.done(); }));
  there.check();
  back.check();
  ASSERT_EQ(world.a.link.rails().size(), 1u);
  EXPECT_EQ(world.a.link.rails()[0].losses, 1u) << "the counters of a rail go on";
}

// The peer gave its link up and begun another: that must not be taken for the old one's continuation.
TEST(LinkFailover, ANewLinkOfThePeerIsNotTakenForTheOldOne) {
  LinkWorld world(4, 1);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(1));
  world.network.cut("a0");
  for (int i = 0; i < 5; ++i) world.poll();
  Side successor(world.with_clock({}));
  Connection* connection = world.a.devices[0]->connect(world.addresses[0], 1000).take();
  world.b.accepted.clear();
  world.poll();
  ASSERT_TRUE(connection->admit(kLinkPeer).is_ok());
  ASSERT_TRUE(world.b.accepted.at(0)->admit(kLinkPeer).is_ok());
  world.b.link.add_rail(world.b.accepted.at(0));
  successor.link.add_rail(connection);
  ASSERT_TRUE(world.run_until([&] { return world.b.down.has_value(); }));
  EXPECT_THAT(world.b.down->message(), HasSubstr("begun a new one"));
}

// A rail on which nothing moves is given up in time; what was on it takes the other one.
TEST(LinkFailover, ASilentRailIsGivenUp) {
  LinkWorld world(5, 2);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(2));
  swallow_all_on_rail_1(world);
  std::mt19937_64 random(5);
  Traffic there(world.a, world.b, random);
  Traffic back(world.b, world.a, random);
  const int64_t begin = world.now;
  for (int i = 0; i < 20; ++i) there.post(300'000), back.post(300'000);
  ASSERT_TRUE(world.run_until([&] { return there.done() && back.done(); }));
  there.check();
  EXPECT_LT(world.now - begin, 50 * kNsPerMs) << "of the polls' time";
  EXPECT_EQ(world.a.rails_up, 1);
}

// Its fragments may stand behind other links' fragments in the queue of a slow NIC. But not for ever:
// one path can fail alone.
TEST(LinkFailover, ASilentRailIsWaitedForWhileOthersBetweenItsNicsMove) {
  // If all fall silent at once, as long as TCP's timer takes (200 ms), since a queue may have dropped what
  // each had under way. While others go on, until the timer (200 ms, then 400) would have sent it twice.
  struct Case {
    int64_t others_move_ns, least_ns, most_ns;
  };
  for (const Case& c :
       {Case{kNsPerMs, 200 * kNsPerMs, 300 * kNsPerMs}, Case{100 * kNsPerMs, 200 * kNsPerMs, 300 * kNsPerMs},
        Case{2 * kNsPerSecond, 600 * kNsPerMs, 1'100 * kNsPerMs}}) {
    LinkWorld world(6, 2);
    world.connect();
    ASSERT_TRUE(world.wait_for_rails(2));
    const auto here = world.lane(*world.a.devices[1], *world.clients[1]);
    const auto there = world.lane(*world.b.devices[1], *world.servers[1]);
    swallow_all_on_rail_1(world);
    std::mt19937_64 random(6);
    Traffic traffic(world.a, world.b, random);
    const int64_t begin = world.now;
    for (int i = 0; i < 20; ++i) traffic.post(300'000);
    ASSERT_TRUE(world.run_until([&] {
      if (world.now < begin + c.others_move_ns) here->progressed(world.now), there->progressed(world.now);
      return world.a.rails_up == 1 || world.now > begin + 2 * kNsPerSecond;
    }));
    EXPECT_GT(world.now - begin, c.least_ns);
    EXPECT_LT(world.now - begin, c.most_ns);
    ASSERT_TRUE(world.run_until([&] { return traffic.done(); }));
    traffic.check();
  }
}

// Where a round takes 80 ms, 20 ms of silence are nothing. Packets that vanish there are noticed all the
// same.
TEST(LinkFailover, ARailWhoseRoundsTakeLongIsWaitedFor) {
  constexpr int64_t kWayNs = 40 * kNsPerMs;
  LinkWorld world(9, 2);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(2));
  fake::Faults slow;
  slow.max_delay_polls = static_cast<uint32_t>(kWayNs / LinkWorld::kPollNs);
  slow.round_ns = 2 * kWayNs;
  for (const char* side : kSideNames) world.network.set_faults(side + std::string("1"), slow);
  std::mt19937_64 random(9);
  Traffic traffic(world.a, world.b, random);
  for (int i = 0; i < 100; ++i) {
    for (int write = 0; write < 10; ++write) traffic.post(300'000);
    ASSERT_TRUE(world.run_until([&] { return traffic.done(); }));
  }
  ASSERT_EQ(sum_of(world.a, &RailStatus::losses), 0u);
  slow.blackhole = true;
  for (const char* side : kSideNames) world.network.set_faults(side + std::string("1"), slow);
  for (int i = 0; i < 20; ++i) traffic.post(300'000);
  const int64_t begin = world.now;
  ASSERT_TRUE(world.run_until([&] { return traffic.done(); }));
  EXPECT_LT(world.now - begin, 250 * kNsPerMs);
  traffic.check();
  EXPECT_EQ(sum_of(world.a, &RailStatus::losses), 1u);
}

// The other end may wait for an acknowledgement that was alone on the rail: everything has come, and the
// sender does not know it.
TEST(LinkFailover, ARailThatSwallowsAnAcknowledgementIsGivenUp) {
  LinkWorld world(7, 2);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(2));
  std::mt19937_64 random(7);
  const std::vector<std::byte> source = random_bytes(300'000, random());
  std::vector<std::byte> region(source.size());
  WriteRequest request{source.data(), source.size(), {}, 0, {}, 0};
  request.region = world.b.enlist(region.data(), region.size());
  world.b.when_arrived = [&](Link&, uint64_t) { swallow_all_on_rail_1(world); };
  ASSERT_TRUE(world.a.link.write(request).is_ok());
  const int64_t begin = world.now;
  ASSERT_TRUE(world.run_until([&] { return world.a.sent.size() == 1 || world.now > begin + kNsPerSecond; }));
  EXPECT_LT(world.now - begin, 60 * kNsPerMs) << "of the polls' time";
  EXPECT_EQ(world.b.arrived.size(), 1u);
  EXPECT_TRUE(same_bytes(region, source));
}

// The peer has given a rail up, and says so on another one, before this end has read its hello on it. What
// would be put on it would wait for ever for a word that has been said.
TEST(LinkFailover, ARailThatThePeerHasLostBeforeItsHelloCameIsNotUsed) {
  constexpr uint64_t kPeersLink = 99;
  LinkWorld world(8, 1);
  const std::string address = world.b.devices[0]->listen(0).take();
  // The peer's ends are played here.
  const auto new_rail = [&] {
    Connection* const wire = world.a.devices[0]->connect(address, 1000).take();
    world.b.accepted.clear();
    world.poll();
    EXPECT_TRUE(wire->admit(kLinkPeer).is_ok());
    EXPECT_TRUE(world.b.accepted.at(0)->admit(kLinkPeer).is_ok());
    world.a.link.add_rail(wire);
    return world.b.accepted.at(0);
  };
  const auto say = [&](Connection* connection, NoticeKind kind, uint64_t number,
                       const std::vector<std::byte>& body) {
    NoticeHead head;
    head.kind = kind;
    head.number = number;
    std::vector<std::byte> message(sizeof head);
    std::memcpy(message.data(), &head, sizeof head);
    message.insert(message.end(), body.begin(), body.end());
    ASSERT_TRUE(connection->send(message, 0).is_ok());
    world.poll();
  };
  Connection* const first = new_rail();
  say(first, NoticeKind::kHello, 0, encode(HelloBody{kPeersLink, 0, 1}));
  ASSERT_EQ(world.a.rails_up, 1);
  Connection* const second = new_rail();
  say(first, NoticeKind::kRailLost, 1, encode(RailLostBody{2, 0}));
  say(second, NoticeKind::kHello, 0, encode(HelloBody{kPeersLink, 0, 2}));
  EXPECT_EQ(world.a.rails_up, 1);
  // The next one is as good as any.
  say(new_rail(), NoticeKind::kHello, 0, encode(HelloBody{kPeersLink, 0, 3}));
  EXPECT_EQ(world.a.rails_up, 2);
}

// A peer that says nothing on any rail is slow, not its rails.
TEST(LinkFailover, RailsOfASlowPeerAreKept) {
  LinkWorld world(6, 3);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(3));
  std::mt19937_64 random(6);
  Traffic there(world.a, world.b, random);
  Traffic back(world.b, world.a, random);
  for (int i = 0; i < 5; ++i) there.post(300'000);
  for (int i = 0; i < 2'000; ++i) {
    world.now += LinkWorld::kPollNs;
    world.a.now = world.now;
    world.a.poll();
  }
  EXPECT_EQ(world.a.rails_up, 3);
  ASSERT_TRUE(world.run_until([&] { return there.done(); }));
  there.check();
  EXPECT_EQ(sum_of(world.a, &RailStatus::losses), 0u);
}

}  // namespace hdt::transport
