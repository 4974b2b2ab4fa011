// link_test.cc: a link over one and several rails of the in-memory network.
#include "transports/link/link.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "tests/unit/transports/link_world.h"
#include "tests/unit/transports/random_bytes.h"
#include "transports/link/fragment.h"

namespace hdt::transport {

namespace {

using testing::HasSubstr;

constexpr uint64_t kSeeds[] = {1, 2, 3, 20240611};

// Random writes of one side to the other.
struct Flow {
  Flow(Side& sender, Side& receiver) : from(sender), to(receiver) {}

  void start(std::mt19937_64& random, size_t writes, size_t most_bytes) {
    for (size_t i = 0; i < writes; ++i) {
      sizes.push_back(random() % 5 == 0 ? random() % 3 : random() % most_bytes);
    }
    const size_t total = std::accumulate(sizes.begin(), sizes.end(), size_t{1});
    source = random_bytes(total, random());
    region.assign(total, source.back());
    const RegionKey key = to.enlist(region.data(), total);
    WriteRequest request;
    request.data = source.data();
    request.region = key;
    for (size_t i = 0; i < writes; ++i) {
      request.bytes = sizes[i];
      request.header = header_of(i);
      request.token = 1000 + i;
      ASSERT_TRUE(from.link.write(request).is_ok());
      request.data = static_cast<const std::byte*>(request.data) + sizes[i];
      request.offset += sizes[i];
    }
  }

  bool done() const { return to.arrived.size() == sizes.size() && from.sent.size() == sizes.size(); }

  // Each arrived once, whole, in its place, and was reported as sent once.
  void check() const {
    EXPECT_TRUE(same_bytes(region, source));
    EXPECT_EQ(from.link.pending_writes(), 0u);
    std::vector<bool> seen(sizes.size());
    for (const Arrival& arrival : to.arrived) {
      ASSERT_LT(arrival.value, sizes.size());
      EXPECT_FALSE(seen[arrival.value]) << "write " << arrival.value << " arrived twice";
      seen[arrival.value] = true;
      EXPECT_EQ(arrival.bytes, sizes[arrival.value]);
    }
    std::vector<uint64_t> tokens = from.sent;
    std::sort(tokens.begin(), tokens.end());
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], 1000 + i);
  }

  Side& from;
  Side& to;
  std::vector<std::byte> source;
  std::vector<std::byte> region;
  std::vector<size_t> sizes;
};

void run_both_ways(LinkWorld& world, uint64_t seed, size_t most_bytes, size_t writes = 60) {
  std::mt19937_64 random(seed);
  Flow there(world.a, world.b);
  Flow back(world.b, world.a);
  there.start(random, writes, most_bytes);
  back.start(random, writes, most_bytes);
  ASSERT_TRUE(world.run_until([&] { return there.done() && back.done(); }));
  there.check();
  back.check();
}

}  // namespace

TEST(Link, OneRail) {
  for (const uint64_t seed : kSeeds) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    LinkWorld world(seed, 1);
    world.connect();
    run_both_ways(world, seed, 100'000);
  }
}

// Between two fragments of a write nothing of it is under way, and still it has not been sent.
TEST(Link, OneFragmentAtATime) {
  LinkWorld world(1, 1, {.fragment_bytes = 2 << 20});
  world.connect();
  run_both_ways(world, 1, 9'000'000, 5);
}

TEST(Link, ThreeRailsWhoseFragmentsOvertakeEachOther) {
  for (const uint64_t seed : kSeeds) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    LinkWorld world(seed, 3);
    fake::Faults faults;
    faults.bytes_per_poll = 50'001;
    faults.max_delay_polls = 7;
    world.network.set_faults(faults);
    world.connect();
    run_both_ways(world, seed, 300'000);
    for (const RailStatus& rail : world.a.link.rails()) {
      EXPECT_GT(rail.writes_out, 0u) << rail.local_address;
      EXPECT_GT(rail.writes_in, 0u) << rail.local_address;
    }
  }
}

TEST(Link, UnequalRailsAddUp) {
  LinkWorld world(1, 3);
  const uint64_t speeds[] = {400'000, 200'000, 100'000};
  for (int i = 0; i < 3; ++i) {
    fake::Faults faults;
    faults.bytes_per_poll = speeds[i];
    world.network.set_faults("a" + std::to_string(i), faults);
  }
  world.connect();
  std::mt19937_64 random(1);
  Flow flow(world.a, world.b);
  flow.start(random, 16, 8'000'000);
  int polls = 0;
  ASSERT_TRUE(world.run_until([&] { return ++polls, flow.done(); }));
  flow.check();
  // The time of all rails together, and at the end the one window that the slowest still has to carry.
  const double total = static_cast<double>(flow.source.size());
  const double ideal = total / 700'000;
  EXPECT_LT(polls, ideal * 1.05 + (1 << 20) / 100'000.0 + 10);
  const std::vector<RailStatus> rails = world.a.link.rails();
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(static_cast<double>(rails[i].bytes_out) / total, static_cast<double>(speeds[i]) / 700'000,
                0.03);
  }
}

// Nothing comes the other way that would carry acknowledgements, and none of the writes asks for one.
TEST(Link, SmallWritesOneWayOpenTheirWindows) {
  LinkWorld world(1, 2);
  fake::Faults faults;
  faults.bytes_per_poll = 1'000;
  world.network.set_faults(faults);
  world.connect();
  std::mt19937_64 random(1);
  Flow flow(world.a, world.b);
  flow.start(random, 300, kCopiedWriteBytes);
  ASSERT_TRUE(world.run_until([&] { return flow.done(); }));
  flow.check();
}

TEST(Link, ARailThatWasSlowIsTriedAgain) {
  LinkWorld world(1, 2);
  fake::Faults slow;
  slow.bytes_per_poll = 500;
  world.network.set_faults("a1", slow);
  world.connect();
  std::vector<std::byte> source(kCopiedWriteBytes);
  std::vector<std::byte> region(kCopiedWriteBytes);
  WriteRequest request{source.data(), source.size(), {}, 0, {}, 0};
  request.region = world.b.enlist(region.data(), region.size());
  const auto write_alone = [&] {
    const size_t before = world.b.arrived.size();
    ASSERT_TRUE(world.a.link.write(request).is_ok());
    ASSERT_TRUE(world.run_until([&] { return world.b.arrived.size() > before; }));
  };
  const auto carried = [&] { return world.a.link.rails()[1].writes_out; };
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(world.a.link.write(request).is_ok());
  ASSERT_TRUE(world.run_until([&] { return world.b.arrived.size() == 100; }));
  ASSERT_GT(carried(), 0u);
  world.network.set_faults("a1", {});
  for (int i = 0; i < 2'000; ++i) world.poll();  // 200 ms without traffic
  const uint64_t before = carried();
  for (int i = 0; i < 100; ++i) write_alone();
  EXPECT_GT(carried(), before);
}

TEST(Link, WhatIsQueuedBeforeTheFirstRailMovesWithIt) {
  LinkWorld world(1, 2);
  std::mt19937_64 random(1);
  Flow flow(world.a, world.b);
  flow.start(random, 10, 100'000);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(world.a.link.send(std::vector<std::byte>(1 + i)).is_ok());
  EXPECT_FALSE(world.a.link.up());
  EXPECT_EQ(world.a.link.pending_writes(), 10u);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(2));
  EXPECT_TRUE(world.a.link.up());
  ASSERT_TRUE(world.run_until([&] { return flow.done() && world.b.messages.size() == 5; }));
  flow.check();
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(world.b.messages[i].size(), 1 + i);
}

TEST(Link, MessagesKeepTheirOrderOverManyRails) {
  LinkWorld world(7, 3);
  fake::Faults faults;
  faults.max_delay_polls = 5;
  world.network.set_faults(faults);
  world.connect();
  std::mt19937_64 random(7);
  std::vector<std::vector<std::byte>> sent;
  for (int i = 0; i < 100; ++i) {
    sent.push_back(random_bytes(1 + random() % 300, random()));
    ASSERT_TRUE(world.a.link.send(sent.back()).is_ok());
  }
  ASSERT_TRUE(world.run_until([&] { return world.b.messages.size() == sent.size(); }));
  EXPECT_EQ(world.b.messages, sent);
}

// Also over a rail that was lost with the answer.
TEST(Link, SaysWhetherThePeerHasHeardAMessage) {
  LinkWorld world(7, 2);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(2));
  EXPECT_TRUE(world.a.link.heard(0));
  ASSERT_TRUE(world.a.link.send(std::vector<std::byte>(1)).is_ok());
  const uint64_t first = world.a.link.last_message();
  ASSERT_TRUE(world.run_until([&] { return world.b.messages.size() == 1; }));
  world.a.link.ping();
  ASSERT_TRUE(world.run_until([&] { return world.a.link.heard(first); }));
  ASSERT_TRUE(world.a.link.send(std::vector<std::byte>(1)).is_ok());
  const uint64_t second = world.a.link.last_message();
  EXPECT_FALSE(world.a.link.heard(second));
  EXPECT_TRUE(world.a.link.heard(first));
  world.a.link.drop_rail(world.clients[0], {Code::kLink, "lost"});
  ASSERT_TRUE(world.run_until([&] { return world.b.messages.size() == 2; }));
  world.a.link.ping();
  EXPECT_TRUE(world.run_until([&] { return world.a.link.heard(second); }));
}

TEST(Link, WrongRequestsQueueNothing) {
  LinkWorld world(1, 1);
  world.connect();
  WriteRequest request;
  request.bytes = 1;
  EXPECT_EQ(world.a.link.write(request).code(), Code::kInvalidArgument) << "no data";
  request.data = &request;
  request.bytes = kMaxLinkWriteBytes + 1;
  EXPECT_EQ(world.a.link.write(request).code(), Code::kInvalidArgument);
  request.bytes = 8;
  request.offset = UINT64_MAX - 6;
  EXPECT_EQ(world.a.link.write(request).code(), Code::kInvalidArgument) << "fragments would wrap around";
  EXPECT_EQ(world.a.link.send({}).code(), Code::kInvalidArgument);
  EXPECT_EQ(world.a.link.send(std::vector<std::byte>(kMaxLinkMessageBytes + 1)).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(world.a.link.pending_writes(), 0u);
}

TEST(Link, ObserverMayAnswerFromInsideItsCalls) {
  LinkWorld world(1, 2);
  world.connect();
  std::vector<std::byte> memory(64);
  const RegionKey at_a = world.a.enlist(memory.data(), 32);
  const RegionKey at_b = world.b.enlist(memory.data() + 32, 32);
  const std::vector<std::byte> source(32, std::byte{1});
  const auto answer = [&](const RegionKey& to) {
    return [&source, to](Link& link, uint64_t value) {
      if (value == 100) return link.close(Status(Code::kAborted, "enough"));
      WriteRequest request{source.data(), 32, to, 0, header_of(value + 1), value};
      EXPECT_TRUE(link.write(request).is_ok());
    };
  };
  world.a.when_arrived = answer(at_b);
  world.b.when_arrived = answer(at_a);
  ASSERT_TRUE(world.a.link.write({source.data(), 32, at_b, 0, header_of(0), 0}).is_ok());
  ASSERT_TRUE(world.run_until([&] { return world.a.down && world.b.down; }));
  EXPECT_EQ(world.a.arrived.size() + world.b.arrived.size(), 101u);
  EXPECT_EQ(world.b.down->message(), "enough");
  EXPECT_THAT(world.a.down->message(), HasSubstr("the peer closed it"));
}

}  // namespace hdt::transport
