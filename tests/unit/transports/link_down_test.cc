// link_down_test.cc: how a link ends: once, with a reason, when no memory is touched any more.
#include <gmock/gmock.h>

#include "tests/unit/transports/link_world.h"
#include "transports/link/fragment.h"

namespace hdt::transport {

namespace {

using testing::AllOf;
using testing::HasSubstr;

// A write of `bytes` zeros from a to b; the source is freed by the caller.
std::unique_ptr<std::vector<std::byte>> start_write(LinkWorld& world, const RegionKey& key, size_t bytes,
                                                    uint64_t token) {
  auto source = std::make_unique<std::vector<std::byte>>(bytes);
  EXPECT_TRUE(world.a.link.write({source->data(), bytes, key, 0, header_of(token), token}).is_ok());
  return source;
}

}  // namespace

// Without a rail the link waits; when none comes in time, it ends.
TEST(LinkDown, TheLastRailIsWaitedForAndThenTheLinkEnds) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    LinkWorld world(seed, 2, {.fragment_bytes = kMinFragmentBytes, .wait_ns = 50 * LinkWorld::kPollNs});
    fake::Faults faults;
    faults.bytes_per_poll = 10'000;
    faults.max_delay_polls = 3;
    world.network.set_faults(faults);
    world.connect();
    ASSERT_TRUE(world.wait_for_rails(2));
    std::vector<std::byte> region(4 << 20);
    const RegionKey key = world.b.enlist(region.data(), region.size());
    auto source = start_write(world, key, region.size(), 5);
    for (uint64_t i = 0; i < 3 + seed; ++i) world.poll();
    const std::string name = world.clients[1]->local_address() + " -> " + world.clients[1]->remote_address();
    world.network.cut("a0");
    for (uint64_t i = 0; i < 5; ++i) world.poll();
    EXPECT_TRUE(world.a.link.up());
    world.network.cut("a1");
    for (int i = 0; i < 40; ++i) world.poll();
    EXPECT_FALSE(world.a.down || world.b.down) << "it waits";
    EXPECT_FALSE(world.a.link.up());
    ASSERT_TRUE(world.run_until([&] { return world.a.down.has_value(); }));
    // From here on the memory is the owner's: a read of it would be found by the address sanitizer.
    source.reset();
    ASSERT_TRUE(
        world.run_until([&] { return world.b.down && world.a.released == 2 && world.b.released == 2; }));
    EXPECT_THAT(world.a.down->message(), AllOf(HasSubstr(name), HasSubstr("the cable was cut")));
    EXPECT_EQ(world.a.down->code(), Code::kLink);
    EXPECT_TRUE(world.a.link.down());
    EXPECT_TRUE(world.a.sent.empty()) << "pending writes are not reported one by one";
    EXPECT_TRUE(world.b.arrived.empty());
    for (int i = 0; i < 20; ++i) world.poll();  // the observers check that nothing more is called
    EXPECT_EQ(world.a.link.write({&region, 1, key, 0, {}, 6}).code(), Code::kLink);
    EXPECT_THAT(world.a.link.send(std::span(region).first(1)).message(), HasSubstr("the cable was cut"));
    for (const RailStatus& rail : world.a.link.rails()) EXPECT_EQ(rail.state, RailStatus::State::kDown);
  }
}

TEST(LinkDown, CloseIsReportedWithItsReason) {
  LinkWorld world(1, 2);
  world.connect();
  world.a.link.close(Status(Code::kAborted, "shutting down"));
  world.a.link.close(Status(Code::kAborted, "again"));
  EXPECT_FALSE(world.a.down) << "rails are still closing";
  ASSERT_TRUE(world.run_until([&] { return world.a.down && world.b.down; }));
  EXPECT_EQ(world.a.down->code(), Code::kAborted);
  EXPECT_EQ(world.a.down->message(), "shutting down");
}

// A rail that was lost once and came back has a last error for ever. At the link's end nothing is lost.
TEST(LinkDown, AnEndInOrderIsNoLossOfRailsThatWereLostBefore) {
  LinkWorld world(1, 2);
  world.connect();
  ASSERT_TRUE(world.wait_for_rails(2));
  world.a.link.drop_rail(world.clients[0], Status(Code::kLink, "pulled out"));
  ASSERT_TRUE(world.wait_for_rails(1));
  world.connect(0);
  ASSERT_TRUE(world.wait_for_rails(2));
  world.a.link.close(Status(Code::kAborted, "shutting down"));
  ASSERT_TRUE(world.run_until([&] { return world.a.down && world.b.down; }));
  EXPECT_THAT(world.a.losses, testing::ElementsAre("pulled out", "", ""));
  EXPECT_THAT(world.b.losses, testing::ElementsAre(testing::Ne(""), "", ""));
}

TEST(LinkDown, CloseWithoutRailsIsReportedAtOnce) {
  Side side({});
  side.link.close(Status(Code::kAborted, "never connected"));
  ASSERT_TRUE(side.down);
  EXPECT_EQ(side.down->message(), "never connected");
}

TEST(LinkDown, RailAddedTooLateIsClosed) {
  LinkWorld world(1, 1);
  world.a.link.close(Status(Code::kAborted, "too late"));
  world.connect();
  ASSERT_TRUE(world.run_until([&] { return world.a.released == 1 && world.b.down; }));
  EXPECT_EQ(world.a.down->message(), "too late");
}

// Values that a peer could put into the immediate of a write, and why each is refused.
TEST(LinkDown, MalformedFragmentsEndTheLink) {
  struct Case {
    const char* reason;
    std::function<void(FragmentHeader&)> change;
  };
  const Case cases[] = {
      {"unknown layout", [](FragmentHeader& c) { c.magic ^= 1; }},
      {"fragment size", [](FragmentHeader& c) { c.pages = 0; }},
      {"fragment size", [](FragmentHeader& c) { c.pages = kMaxFragmentBytes / kFragmentPage + 1; }},
      {"message size", [](FragmentHeader& c) { c.message_bytes = kMaxLinkWriteBytes + 1; }},
      {"behind the end", [](FragmentHeader& c) { c.index = 2; }},
      {"behind the end", [](FragmentHeader& c) { c.index = UINT32_MAX; }},
      {"length", [](FragmentHeader& c) { c.index = 1; }},
      {"contradicts", [](FragmentHeader& c) { c.message_bytes -= 1; }},
      {"contradicts", [](FragmentHeader& c) { c.header[0] ^= std::byte{1}; }},
      {"came twice", [](FragmentHeader&) {}},
      {"acknowledges what was not sent", [](FragmentHeader& c) { c.message_id = 1, c.received = 1; }},
      {"", [](FragmentHeader& c) { c.message_id = 1; }},  // a good one: another message
  };
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.reason);
    LinkWorld world(1, 1);
    world.connect();
    ASSERT_TRUE(world.wait_for_rails(1));
    std::vector<std::byte> region(2 * kMinFragmentBytes);
    const RegionKey key = world.b.enlist(region.data(), region.size());
    // The first fragment of two, then the wrong one; written past a's link.
    FragmentHeader fragment;
    fragment.message_bytes = kMinFragmentBytes + 100;
    fragment.pages = kMinFragmentBytes / kFragmentPage;
    const std::vector<std::byte> source(kMinFragmentBytes);
    Connection* wire = world.clients[0];
    ASSERT_TRUE(wire->write(source.data(), source.size(), key, 0, to_immediate(fragment), 1).is_ok());
    wrong.change(fragment);
    ASSERT_TRUE(wire->write(source.data(), source.size(), key, 0, to_immediate(fragment), 2).is_ok());
    for (int i = 0; i < 10; ++i) world.b.poll();
    ASSERT_EQ(world.b.down.has_value(), *wrong.reason != 0);
    if (world.b.down) {
      EXPECT_THAT(world.b.down->message(), AllOf(HasSubstr(wrong.reason), HasSubstr("rail b0:")));
    }
    EXPECT_TRUE(world.b.arrived.empty());
  }
}

}  // namespace hdt::transport
