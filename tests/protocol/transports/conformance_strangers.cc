// conformance_strangers.cc: who has not shown who it is may say a few short words, and who has writes to what
// was granted to it and to nothing else.
#include <algorithm>

#include "tests/protocol/transports/transport_conformance.h"

namespace hdt::transport {

using Kind = Completion::Kind;

namespace {
// More than what travels inside of a frame, in every backend.
constexpr size_t kStrangerBytes = 100'000;
}  // namespace

TEST_P(TransportStrangers, AWriteOfAStrangerEndsItsConnectionAndPlacesNothing) {
  std::vector<std::byte> memory(kStrangerBytes, std::byte{7});
  const auto key = b_.enlist(memory.data(), memory.size());
  ASSERT_TRUE(key.is_ok());
  const Pair bystander = connect();
  const std::vector<std::byte> source(kStrangerBytes, std::byte{1});
  const Pair pair = meet();
  EXPECT_EQ(pair.client->write(source.data(), 1, key.value(), 0, {}, 1).code(), Code::kInvalidUsage);
  EXPECT_EQ(pair.client->write_window(), 0u);
  ASSERT_TRUE(pair.client->admit(kPeer).is_ok());  // it knows the other end, which does not know it
  for (const size_t bytes : {size_t{0}, size_t{1}, kStrangerBytes})
    (void)pair.client->write(source.data(), bytes, key.value(), 0, immediate_of(1), 1);
  ASSERT_TRUE(
      run_until([&] { return b_.closed(pair.server) != nullptr && a_.closed(pair.client) != nullptr; }));
  EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
  EXPECT_EQ(b_.count(Kind::kWritten), 0u);
  EXPECT_EQ(memory, std::vector<std::byte>(kStrangerBytes, std::byte{7}));
  // A connection that is admitted as the same peer goes on.
  ASSERT_TRUE(
      bystander.client->write(source.data(), kStrangerBytes, key.value(), 0, immediate_of(2), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kWritten, bystander.server) == 1; }));
  EXPECT_EQ(memory, source);
}

TEST_P(TransportStrangers, ALongMessageOfAStrangerEndsItsConnection) {
  const Pair pair = meet();
  const std::vector<std::byte> message(kMaxStrangerMessageBytes + 1);
  EXPECT_EQ(pair.client->send(message, 1).code(), Code::kInvalidUsage);
  ASSERT_TRUE(pair.client->send(std::span(message).first(kMaxStrangerMessageBytes), 0).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage) == 1; }));
  ASSERT_TRUE(pair.client->admit(kPeer).is_ok());
  // Where a connection is ready only when both ends have admitted the other one, that was too much already.
  ASSERT_TRUE(run_until([&] { return a_.count(Kind::kReady) == 1 || b_.closed(pair.server) != nullptr; }));
  (void)pair.client->send(message, 0);
  ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
  EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
  ASSERT_EQ(b_.count(Kind::kMessage), 1u);
  EXPECT_EQ(b_.all(Kind::kMessage).front()->message.size(), kMaxStrangerMessageBytes);
}

TEST_P(TransportStrangers, AStrangerMayNotTalkForEver) {
  const Pair pair = meet();
  const std::vector<std::byte> message(10);
  for (size_t i = 0; i <= kMaxStrangerMessages; ++i) {
    if (!pair.client->send(message, 0).is_ok()) break;
  }
  ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
  EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
  EXPECT_EQ(b_.count(Kind::kMessage), kMaxStrangerMessages);
}

// The owner may admit the peer after each message, and the next one is then an admitted peer's.
TEST_P(TransportStrangers, MessagesOfAStrangerComeOneInEachPoll) {
  const Pair pair = meet();
  const std::vector<std::byte> message(10);
  size_t sent = 0;
  const auto send_three = [&] {
    for (int i = 0; i < 3; ++i, ++sent) ASSERT_TRUE(pair.client->send(message, 0).is_ok());
    for (int i = 0; i < 100; ++i) a_.poll();
  };
  send_three();
  // After some polls more follow, while earlier ones are still to be handed over.
  ASSERT_TRUE(run_until({&a_}, [&] {
    const size_t before = b_.count(Kind::kMessage, pair.server);
    b_.poll();
    const size_t after = b_.count(Kind::kMessage, pair.server);
    EXPECT_LE(after - before, 1U);
    if (after >= 1 && sent == 3) send_three();
    return after == 6;
  }));
}

// The peer has admitted this end a moment before, and goes on at once: nothing of that may be taken for a
// stranger's.
TEST_P(TransportStrangers, WhatFollowsTheAdmissionComesAsFromAnyPeer) {
  std::vector<std::byte> memory(kStrangerBytes);
  const auto key = b_.enlist(memory.data(), memory.size());
  ASSERT_TRUE(key.is_ok());
  const std::vector<std::byte> source = random_bytes(kStrangerBytes, test_seed());
  const std::vector<std::byte> word(10, std::byte{1});
  const std::vector<std::byte> message = random_bytes(kMaxMessageBytes, test_seed() + 1);
  const Pair pair = meet();
  ASSERT_TRUE(pair.client->send(word, 0).is_ok());
  ASSERT_TRUE(pair.client->admit(kPeer).is_ok());
  bool posted = false;
  bool admitted = false;
  ASSERT_TRUE(run_until([&] {
    if (!admitted && b_.count(Kind::kMessage) == 1) {
      admitted = true;
      EXPECT_TRUE(pair.server->admit(kPeer).is_ok());
      EXPECT_FALSE(pair.server->admit(kPeer).is_ok()) << "once";
    }
    if (!posted && a_.count(Kind::kReady) == 1) {
      posted = true;
      EXPECT_TRUE(pair.client->send(message, 0).is_ok());
    }
    return b_.count(Kind::kMessage) == 2;
  }));
  EXPECT_EQ(b_.all(Kind::kMessage)[1]->message, message);
  const auto ready = std::find_if(b_.events.begin(), b_.events.end(),
                                  [](const Event& event) { return event.completion.kind == Kind::kReady; });
  ASSERT_NE(ready, b_.events.end());
  EXPECT_EQ(b_.events.end() - ready, 2) << "the message came behind kReady";
  ASSERT_TRUE(pair.client->write(source.data(), source.size(), key.value(), 0, immediate_of(1), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kWritten) == 1 && a_.count(Kind::kSent) == 1; }));
  EXPECT_EQ(memory, source);
}

TEST_P(TransportStrangers, MemoryIsWrittenByThoseItWasGrantedToAndNobodyElse) {
  std::vector<std::byte> memory(kStrangerBytes, std::byte{7});
  const std::vector<std::byte> untouched = memory;
  const std::vector<std::byte> source(kStrangerBytes, std::byte{1});
  const auto key = b_.device->register_memory(memory.data(), memory.size(), -1);
  ASSERT_TRUE(key.is_ok());
  const auto is_refused = [&] {
    const Pair pair = connect();
    for (const size_t bytes : {size_t{1}, kStrangerBytes}) {
      EXPECT_TRUE(b_.closed(pair.server) != nullptr || memory == untouched || !world_->knows_writers());
      (void)pair.client->write(source.data(), bytes, key.value(), 0, immediate_of(1), 1);
    }
    const bool ended =
        run_until([&] { return b_.closed(pair.server) != nullptr && a_.closed(pair.client) != nullptr; });
    if (!ended) return false;
    EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
    EXPECT_EQ(b_.count(Kind::kWritten, pair.server), 0u);
    EXPECT_TRUE(memory == untouched || !world_->knows_writers());
    return true;
  };
  EXPECT_TRUE(is_refused()) << "granted to nobody";
  ASSERT_TRUE(b_.device->grant(key.value(), kOtherPeer).is_ok());
  EXPECT_TRUE(is_refused()) << "granted to another peer";
  ASSERT_TRUE(b_.device->grant(key.value(), kPeer).is_ok());
  ASSERT_TRUE(b_.device->grant(key.value(), kPeer).is_ok()) << "twice is once";
  const Pair pair = connect();
  ASSERT_TRUE(pair.client->write(source.data(), kStrangerBytes, key.value(), 0, immediate_of(1), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kWritten, pair.server) == 1; }));
  EXPECT_EQ(memory, source);
  memory = untouched;
  b_.device->revoke(key.value(), kOtherPeer);
  ASSERT_TRUE(pair.client->write(source.data(), kStrangerBytes, key.value(), 0, immediate_of(2), 2).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kWritten, pair.server) == 2; }));
  memory = untouched;
  b_.device->revoke(key.value(), kPeer);
  (void)pair.client->write(source.data(), kStrangerBytes, key.value(), 0, immediate_of(3), 3);
  ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
  EXPECT_EQ(b_.count(Kind::kWritten, pair.server), 2u);
  EXPECT_TRUE(memory == untouched || !world_->knows_writers());
  b_.device->deregister_memory(key.value());
  EXPECT_FALSE(b_.device->grant(key.value(), kPeer).is_ok()) << "it is not registered any more";
}

TEST_P(TransportStrangers, RevokingInTheMiddleOfAWriteStopsIt) {
  if (!world_->knows_writers()) GTEST_SKIP() << "the adapter places by itself";
  expect_stops_a_write([this](const RegionKey& key) { b_.device->revoke(key, kPeer); });
}

}  // namespace hdt::transport
