// conformance_refusals.cc: wrong calls start nothing; foreign writes outside of registered memory place
// nothing and cost the peer its connection, and no one else.
#include <algorithm>
#include <limits>

#include "tests/protocol/transports/transport_conformance.h"

namespace hdt::transport {

using Kind = Completion::Kind;

TEST_P(TransportConformance, WrongCallsStartNothing) {
  const Pair pair = connect();
  const std::vector<std::byte> data(kMaxMessageBytes + 1);
  EXPECT_EQ(pair.client->send({}, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(pair.client->send(data, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(pair.client->write(nullptr, 1, {}, 0, {}, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(pair.client->write(data.data(), kMaxWriteBytes + 1, {}, 0, {}, 1).code(), Code::kInvalidArgument);
  EXPECT_FALSE(a_.device->connect("no address", 1000).is_ok());
  EXPECT_FALSE(a_.device->register_memory(nullptr, 1, -1).is_ok());
  EXPECT_FALSE(b_.device->listen(0).is_ok()) << "it listens already";
  // Everything that was started has been reported when a message made the way.
  ASSERT_TRUE(pair.client->send(std::span(data).first(1), 2).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage) == 1 && a_.count(Kind::kSent) == 1; }));
  EXPECT_EQ(a_.all(Kind::kSent).front()->completion.token, 2u);
  EXPECT_EQ(b_.count(Kind::kWritten), 0u);
}

TEST_P(TransportConformance, SendBeforeConnectedIsRefused) {
  auto connection = a_.device->connect(b_.address, 5000);
  ASSERT_TRUE(connection.is_ok());
  EXPECT_EQ(connection.value()->send(std::vector<std::byte>(1), 1).code(), Code::kInvalidUsage);
  ASSERT_TRUE(run_until([&] { return a_.count(Kind::kConnected) == 1; }));
  EXPECT_TRUE(connection.value()->send(std::vector<std::byte>(1), 1).is_ok());
}

TEST_P(TransportConformance, ForeignWritesOutsideOfTheRegionAreRefused) {
  constexpr size_t kBytes = 4096;
  std::vector<std::byte> memory(3 * kBytes, std::byte{7});
  const std::vector<std::byte> untouched = memory;
  const auto key = b_.enlist(memory.data() + kBytes, kBytes);
  ASSERT_TRUE(key.is_ok());
  const std::vector<std::byte> source(2 * kBytes, std::byte{1});
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  struct Case {
    const char* name;
    bool right_key;
    uint64_t offset;
    size_t bytes;
  };
  const Case cases[] = {{"wrong key", false, 0, 16},
                        {"one past the end", true, kBytes - 15, 16},
                        {"offset behind the end", true, kBytes + 1, 1},
                        {"longer than the region", true, 0, kBytes + 1},
                        {"offset + length overflows", true, kMax - 7, 16},
                        {"offset -16", true, kMax - 15, 16},
                        {"largest offset", true, kMax, 1}};
  const Pair bystander = connect();
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.name);
    const Pair pair = connect();
    RegionKey used = key.value();
    if (!wrong.right_key) used.bytes[0] ^= std::byte{1};
    ASSERT_TRUE(
        pair.client->write(source.data(), wrong.bytes, used, wrong.offset, immediate_of(1), 1).is_ok());
    ASSERT_TRUE(
        run_until([&] { return b_.closed(pair.server) != nullptr && a_.closed(pair.client) != nullptr; }));
    EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
    EXPECT_FALSE(b_.closed(pair.server)->completion.error.message().empty());
    EXPECT_FALSE(a_.closed(pair.client)->completion.error.is_ok());
    EXPECT_EQ(a_.count(Kind::kSent, pair.client), 1u);
    EXPECT_EQ(b_.count(Kind::kWritten), 0u);
    a_.device->release(pair.client);
    b_.device->release(pair.server);
    a_.events.clear();
    b_.events.clear();
  }
  EXPECT_EQ(memory, untouched);
  // The bystander still works, to the last byte of the region.
  ASSERT_TRUE(bystander.client->write(source.data(), kBytes, key.value(), 0, immediate_of(9), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kWritten, bystander.server) == 1; }));
  EXPECT_TRUE(std::equal(source.begin(), source.begin() + kBytes, memory.begin() + kBytes));
  EXPECT_EQ(memory[kBytes - 1], std::byte{7});
  EXPECT_EQ(memory[2 * kBytes], std::byte{7});
}

TEST_P(TransportConformance, DeregisteredKeyIsUnknown) {
  const Pair pair = connect();
  std::vector<std::byte> memory(64, std::byte{7});
  const auto key = b_.enlist(memory.data(), memory.size());
  ASSERT_TRUE(key.is_ok());
  b_.device->deregister_memory(key.value());
  const std::vector<std::byte> source(64, std::byte{1});
  ASSERT_TRUE(pair.client->write(source.data(), 64, key.value(), 0, immediate_of(1), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
  EXPECT_EQ(memory, std::vector<std::byte>(64, std::byte{7}));
}

void TransportConformance::expect_stops_a_write(const std::function<void(const RegionKey&)>& stop) {
  const Pair pair = connect();
  const std::vector<std::byte> source(size_t{64} << 20, std::byte{1});
  std::vector<std::byte> memory(source.size());
  const auto key = b_.enlist(memory.data(), memory.size());
  ASSERT_TRUE(key.is_ok());
  ASSERT_TRUE(pair.client->write(source.data(), source.size(), key.value(), 0, immediate_of(1), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return memory[0] == std::byte{1}; }));
  ASSERT_EQ(b_.count(Kind::kWritten), 0u) << "the write was over too soon to be a test";
  stop(key.value());
  const std::vector<std::byte> frozen = memory;
  ASSERT_TRUE(
      run_until([&] { return b_.closed(pair.server) != nullptr && a_.closed(pair.client) != nullptr; }));
  EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
  EXPECT_EQ(b_.count(Kind::kWritten), 0u);
  EXPECT_TRUE(same_bytes(memory, frozen)) << "nothing is placed after it returned";
}

TEST_P(TransportConformance, DeregisterInTheMiddleOfAWriteStopsIt) {
  expect_stops_a_write([this](const RegionKey& key) { b_.device->deregister_memory(key); });
}

}  // namespace hdt::transport
