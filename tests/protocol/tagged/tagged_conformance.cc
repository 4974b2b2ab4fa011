// tagged_conformance.cc: the conformance suite over data paths in memory, and what every backend over tagged
// messages must survive: strangers at its port, peers with other settings, data paths that fail.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstring>
#include <random>

#include "tests/protocol/tagged/memory_fabric.h"
#include "tests/protocol/transports/loopback_world.h"
#include "transports/tagged/control.h"
#include "transports/tagged/device.h"

namespace hdt::transport {

namespace {

using Kind = Completion::Kind;
using Exchange = tagged::MemoryFabric::Exchange;

class MemoryBackend final : public Backend {
 public:
  const char* name() const override { return "memory"; }
  Result<std::vector<DeviceInfo>> discover() override { return std::vector<DeviceInfo>(); }
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    return tagged::TaggedDevice::open(domain_, info,
                                      std::make_unique<tagged::MemoryFabric>(exchange, protocol));
  }
  void limit_strangers(const StrangerLimits& limits) override { domain_->strangers.set_limits(limits); }
  std::shared_ptr<Exchange> exchange = std::make_shared<Exchange>();
  std::string protocol = "memory";

 private:
  std::shared_ptr<tagged::Domain> domain_ = std::make_shared<tagged::Domain>();
};

std::unique_ptr<World> make_memory() {
  return std::make_unique<LoopbackWorld>(std::unique_ptr<Backend>(std::make_unique<MemoryBackend>()));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Memory, TransportConformance, testing::Values(&make_memory));
INSTANTIATE_TEST_SUITE_P(Memory, TransportStrangers, testing::Values(&make_memory));

class TaggedStrangers : public TransportConformance {
 protected:
  MemoryBackend& memory() { return dynamic_cast<MemoryBackend&>(world_->backend()); }
  // Sends `bytes` to b_'s port, as a stranger or as a peer that b_ has admitted, and waits until b_ has
  // closed the socket.
  bool is_thrown_out(const std::vector<std::byte>& bytes, bool admitted) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(b_.address.substr(b_.address.rfind(':') + 1))));
    ::inet_pton(AF_INET, "127.0.1.2", &address.sin_addr);
    const size_t accepted = b_.count(Kind::kAccepted);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_TRUE(run_until({&b_}, [&] { return b_.count(Kind::kAccepted) == accepted + 1; }));
    if (admitted) {
      EXPECT_TRUE(b_.all(Kind::kAccepted).back()->completion.connection->admit(kPeer).is_ok());
    }
    const size_t data_paths = memory().exchange->size();
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::byte answer[1024];
    const bool ended = run_until({&b_}, [&] {
      b_.poll();
      ssize_t n = 0;
      while ((n = ::recv(fd, answer, sizeof answer, MSG_DONTWAIT)) > 0) {
      }
      return n == 0 || errno != EAGAIN;
    });
    ::close(fd);
    EXPECT_LE(memory().exchange->size(), data_paths) << "a data path was opened for a stranger";
    return ended;
  }
};
INSTANTIATE_TEST_SUITE_P(Memory, TaggedStrangers, testing::Values(&make_memory));

TEST_P(TaggedStrangers, NameNoEndpointsAndAdmittedOnesOnlySuchAsAre) {
  const Pair bystander = connect();
  const auto hello = [](auto change) {
    tagged::HelloHeader header;
    header.protocol_bytes = 6;
    header.address_bytes = 8;
    header.segment_bytes = 4096;
    change(header);
    std::vector<std::byte> bytes(1 + sizeof header + 14, std::byte{'x'});
    bytes[0] = static_cast<std::byte>(tagged::Item::kHello);
    std::memcpy(bytes.data() + 1, &header, sizeof header);
    return bytes;
  };
  using Header = tagged::HelloHeader;
  for (const bool admitted : {false, true}) {
    EXPECT_TRUE(is_thrown_out(hello([](Header& h) { h.magic ^= 1; }), admitted));
    EXPECT_TRUE(is_thrown_out(hello([](Header& h) { h.version = 9; }), admitted));
    EXPECT_TRUE(is_thrown_out(hello([](Header& h) { h.protocol_bytes = 0; }), admitted));
    EXPECT_TRUE(is_thrown_out(hello([](Header& h) { h.protocol_bytes = UINT16_MAX; }), admitted));
    EXPECT_TRUE(is_thrown_out(hello([](Header& h) { h.address_bytes = UINT32_MAX; }), admitted));
    EXPECT_TRUE(is_thrown_out(hello([](Header& h) { h.segment_bytes = 0; }), admitted));
    EXPECT_TRUE(is_thrown_out(hello([](Header& h) { h.segment_bytes = UINT32_MAX; }), admitted));
    EXPECT_TRUE(is_thrown_out(hello([](Header&) {}), admitted)) << "another protocol";
    EXPECT_TRUE(is_thrown_out({std::byte{'M'}, std::byte{0}, std::byte{0}}, admitted));
    EXPECT_TRUE(is_thrown_out({std::byte{'M'}, std::byte{0xff}, std::byte{0xff}}, admitted));
    EXPECT_TRUE(is_thrown_out({std::byte{'R'}}, admitted));
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < 20; ++i) {
      std::vector<std::byte> noise = random_bytes(16 + random() % 3000, random());
      if (noise[0] == std::byte{'M'}) noise[0] = std::byte{0};
      EXPECT_TRUE(is_thrown_out(noise, admitted));
    }
  }
  EXPECT_EQ(b_.count(Kind::kMessage), 0u);
  EXPECT_EQ(b_.count(Kind::kReady), 1u);
  ASSERT_TRUE(bystander.client->send(random_bytes(100, 1), 0).is_ok());
  EXPECT_TRUE(run_until([&] { return b_.count(Kind::kMessage, bystander.server) == 1; }));
}

TEST_P(TaggedStrangers, AnotherProviderIsNamedOnTheSideThatConnects) {
  memory().protocol = "other";
  auto opened = memory().open(world_->device(2));
  ASSERT_TRUE(opened.is_ok());
  Endpoint other;
  other.device = opened.take();
  auto connection = other.device->connect(b_.address, kConnectMs);
  ASSERT_TRUE(connection.is_ok());
  ASSERT_TRUE(run_until(
      {&other, &b_}, [&] { return other.count(Kind::kConnected) == 1 && b_.count(Kind::kAccepted) == 1; }));
  ASSERT_TRUE(connection.value()->admit(kPeer).is_ok());
  ASSERT_TRUE(b_.all(Kind::kAccepted).back()->completion.connection->admit(kPeer).is_ok());
  ASSERT_TRUE(run_until({&other, &b_}, [&] { return other.closed(connection.value()) != nullptr; }));
  const Status error = other.closed(connection.value())->completion.error;
  EXPECT_EQ(error.code(), Code::kNoBackend) << error.to_string();
  EXPECT_THAT(error.message(), testing::HasSubstr("'memory'"));
  EXPECT_EQ(b_.count(Kind::kReady), 0u);
}

// The kernel has taken the connection when the other end finds that it has no descriptor for it. A control
// socket has no words for that: it is closed, and whoever connects is not told of another protocol.
TEST_P(TaggedStrangers, WhoIsClosedAtTheLimitOfDescriptorsHearsNoOtherProtocol) {
  auto connection = a_.device->connect(b_.address, kConnectMs);
  ASSERT_TRUE(connection.is_ok()) << connection.status().to_string();
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int next = ::dup(STDOUT_FILENO);  // the lowest that is free
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit none_left = usual;
  none_left.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  const bool closed = run_until([&] { return a_.closed(connection.value()) != nullptr; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  ASSERT_TRUE(closed);
  EXPECT_EQ(b_.count(Kind::kAccepted), 0u);
  const std::string why = a_.closed(connection.value())->completion.error.message();
  EXPECT_THAT(why, testing::Not(testing::HasSubstr("protocol")));
}

TEST_P(TaggedStrangers, FailedDataPathEndsTheConnectionWithItsReason) {
  const Pair pair = connect();
  ASSERT_TRUE(pair.client->send(random_bytes(10, 1), 1).is_ok());
  for (auto& [id, data_path] : *memory().exchange) data_path->fail();
  ASSERT_TRUE(
      run_until([&] { return a_.closed(pair.client) != nullptr && b_.closed(pair.server) != nullptr; }));
  EXPECT_THAT(a_.closed(pair.client)->completion.error.message(), testing::HasSubstr("cable"));
  EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
  EXPECT_EQ(a_.count(Kind::kSent, pair.client), 1u) << "reported before the end, successful or not";
}

}  // namespace hdt::transport
