// tcp_conformance.cc: the conformance suite over TCP on loopback addresses, and what only TCP has: foreign
// bytes at its port.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>

#include "tests/protocol/transports/loopback_world.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/options.h"

namespace hdt::transport {

namespace {

using Kind = Completion::Kind;

class TcpWorld : public LoopbackWorld {
 public:
  explicit TcpWorld(const tcp::Options& options) : LoopbackWorld(tcp::make_backend(options)) {}
  // A full accept queue: the kernel drops further connection requests.
  std::string silent_address() override {
    const int listener = bound("127.0.1.8");
    ::listen(listener, 0);
    const sockaddr_in address = loopback("127.0.1.8", port_of(listener));
    for (int i = 0; i < 4; ++i) {
      ::connect(hold(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)),
                reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    return "127.0.1.8:" + std::to_string(port_of(listener));
  }
};

std::unique_ptr<World> make_tcp() { return std::make_unique<TcpWorld>(tcp::Options{}); }
// All payload that the kernel takes without a copy, until it says that it copies on loopback; and never any.
std::unique_ptr<World> make_zero_copy() {
  return std::make_unique<TcpWorld>(tcp::Options{.zero_copy_bytes = 1});
}
std::unique_ptr<World> make_copying() {
  return std::make_unique<TcpWorld>(tcp::Options{.zero_copy_bytes = 0, .bind_device = true});
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance, testing::Values(&make_tcp));
INSTANTIATE_TEST_SUITE_P(TcpZeroCopy, TransportConformance, testing::Values(&make_zero_copy));
INSTANTIATE_TEST_SUITE_P(TcpCopying, TransportConformance, testing::Values(&make_copying));

INSTANTIATE_TEST_SUITE_P(Tcp, TransportStrangers, testing::Values(&make_tcp));
INSTANTIATE_TEST_SUITE_P(TcpZeroCopy, TransportStrangers, testing::Values(&make_zero_copy));

class TcpForeignBytes : public TransportConformance {
 protected:
  // Sends `bytes` to b_'s port from a plain socket and closes it; returns the reason of the connection's end.
  Status throw_at_listener(const std::vector<std::byte>& bytes) {
    const size_t closed = b_.count(Kind::kClosed);
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = listener_address();
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    // The other side may close before it has taken everything.
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n < 0) break;
      done += static_cast<size_t>(n);
    }
    ::shutdown(fd, SHUT_WR);
    EXPECT_TRUE(run_until([&] { return b_.count(Kind::kClosed) == closed + 1; }));
    ::close(fd);
    return b_.all(Kind::kClosed).back()->completion.error;
  }
  sockaddr_in listener_address() const {
    const std::string port = b_.address.substr(b_.address.rfind(':') + 1);
    return loopback("127.0.1.2", static_cast<uint16_t>(std::stoi(port)));
  }
  std::vector<std::byte> bytes_of(const tcp::FrameHeader& header) {
    std::vector<std::byte> bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }
};
INSTANTIATE_TEST_SUITE_P(Tcp, TcpForeignBytes, testing::Values(&make_tcp));

TEST_P(TcpForeignBytes, MalformedHeadersEndOnlyTheirConnection) {
  const Pair bystander = connect();
  using tcp::FrameHeader;
  using tcp::FrameType;
  const auto broken = [](auto change) {
    FrameHeader header;
    header.payload_bytes = 10;
    change(header);
    return header;
  };
  const FrameHeader headers[] = {
      broken([](FrameHeader& h) { h.magic ^= 1; }),
      broken([](FrameHeader& h) { h.version = tcp::kFrameVersion + 1; }),
      broken([](FrameHeader& h) { h.type = static_cast<FrameType>(77); }),
      broken([](FrameHeader& h) { h.reserved = 1; }),
      broken([](FrameHeader& h) { h.reserved2 = 1; }),
      broken([](FrameHeader& h) { h.payload_bytes = 0; }),
      broken([](FrameHeader& h) { h.payload_bytes = kMaxMessageBytes + 1; }),
      broken([](FrameHeader& h) { h.region = 5; }),
      broken([](FrameHeader& h) { h.type = FrameType::kGoodbye; }),
      broken([](FrameHeader& h) { h.type = FrameType::kWrite, h.payload_bytes = UINT32_MAX; }),
      broken([](FrameHeader& h) { h.type = FrameType::kPath, h.region = 0; }),
      broken([](FrameHeader& h) { h.type = FrameType::kPath, h.region = tcp::kPathSeen + 1; }),
      broken([](FrameHeader& h) {
        h.type = FrameType::kPath, h.region = tcp::kPathSize, h.payload_bytes = tcp::kMaxPathBytes + 1;
      }),
      // Out of their places in the test of the path.
      broken([](FrameHeader&) {}),
      broken([](FrameHeader& h) { h.type = FrameType::kPath, h.region = tcp::kPathAll; }),
  };
  for (const FrameHeader& header : headers) {
    std::vector<std::byte> bytes = bytes_of(header);
    bytes.resize(bytes.size() + kImmediateBytes);
    const Status reason = throw_at_listener(bytes);
    EXPECT_FALSE(reason.is_ok());
    EXPECT_THAT(reason.message(),
                testing::AnyOf(testing::HasSubstr("malformed"), testing::HasSubstr("version")));
  }
  // A write to a region that was never registered, by its plain number.
  FrameHeader write = broken([](FrameHeader& h) { h.type = FrameType::kWrite, h.region = 1; });
  std::vector<std::byte> bytes = bytes_of(write);
  bytes.resize(bytes.size() + kImmediateBytes + 10);
  EXPECT_THAT(throw_at_listener(bytes).message(),
              testing::HasSubstr("a write from a peer that has not shown"));
  // Cut short in the middle of a frame.
  EXPECT_THAT(throw_at_listener(bytes_of(broken([](FrameHeader&) {}))).message(),
              testing::HasSubstr("middle of a frame"));
  EXPECT_EQ(b_.count(Kind::kMessage), 0u);
  EXPECT_EQ(b_.count(Kind::kWritten), 0u);

  ASSERT_TRUE(bystander.client->send(random_bytes(100, 1), 0).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage, bystander.server) == 1; }));
}

// Bytes that close() leaves in the kernel reach a slow reader although input was left unread.
TEST_P(TcpForeignBytes, CloseKeepsWhatWasSentForASlowReader) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int receive_buffer = 12 << 10;
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer), 0);
  const sockaddr_in address = listener_address();
  ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kAccepted) == 1; }));
  // The first message must say that packets of all sizes pass: here, none was tried.
  for (const uint64_t step : {tcp::kPathHere, tcp::kPathAll}) {
    tcp::FrameHeader first;
    first.type = tcp::FrameType::kPath;
    first.region = step;
    ASSERT_EQ(::send(fd, &first, sizeof first, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof first));
  }
  constexpr size_t kOfTheTest = 3 * sizeof(tcp::FrameHeader);  // here, all, seen
  Connection* server = b_.all(Kind::kAccepted)[0]->completion.connection;
  ASSERT_TRUE(server->admit(kPeer).is_ok());
  constexpr size_t kMessages = 5;
  const std::vector<std::byte> message = random_bytes(kMaxMessageBytes, test_seed());
  for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(server->send(message, i + 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kSent) == kMessages; }));

  ASSERT_EQ(::send(fd, message.data(), 100, MSG_NOSIGNAL), 100);  // never read by the device
  server->close();
  std::vector<std::byte> received;
  ASSERT_TRUE(run_until({&b_}, [&] {
    b_.poll();
    std::array<std::byte, 1024> piece;
    ssize_t n = 0;
    while ((n = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT)) > 0) {
      received.insert(received.end(), piece.begin(), piece.begin() + n);
    }
    return n == 0 || errno != EAGAIN;
  }));
  EXPECT_EQ(received.size(),
            kOfTheTest + kMessages * (sizeof(tcp::FrameHeader) + message.size()) + sizeof(tcp::FrameHeader));
  ::close(fd);
}

TEST_P(TcpForeignBytes, RandomBytesEndOnlyTheirConnection) {
  const Pair bystander = connect();
  std::vector<std::byte> memory(1 << 16, std::byte{7});
  ASSERT_TRUE(b_.enlist(memory.data(), memory.size()).is_ok());
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 50; ++i) {
    std::vector<std::byte> bytes = random_bytes(32 + random() % 100'000, random());
    if (i % 2 == 0) {  // a good beginning, then noise
      const uint32_t magic = tcp::kFrameMagic;
      std::memcpy(bytes.data(), &magic, sizeof magic);
      bytes[4] = std::byte{tcp::kFrameVersion};
      bytes[5] = std::byte(1 + random() % 3);
    }
    EXPECT_FALSE(throw_at_listener(bytes).is_ok());
  }
  EXPECT_EQ(memory, std::vector<std::byte>(1 << 16, std::byte{7}));
  ASSERT_TRUE(bystander.client->send(random_bytes(100, 1), 0).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage, bystander.server) == 1; }));
}

// Places for strangers: the oldest goes, of the address that has the most; who is admitted needs none.
TEST_P(TcpForeignBytes, StrangersHaveTheirPlacesAndThoseWhoAreQuickFindOne) {
  world_->backend().limit_strangers({.all = 6, .per_address = 4});
  const Pair friendly = connect();
  std::vector<Pair> strangers;
  for (int i = 0; i < 10; ++i) strangers.push_back(meet());
  EXPECT_EQ(b_.count(Kind::kClosed), 6u);
  for (size_t i = 0; i < strangers.size(); ++i) {
    const Event* closed = b_.closed(strangers[i].server);
    ASSERT_EQ(closed != nullptr, i < 6) << i;
    if (closed == nullptr) continue;
    EXPECT_EQ(closed->completion.error.code(), Code::kSystem);
    EXPECT_THAT(closed->completion.error.message(), testing::HasSubstr("limits.strangers_per_address = 4"));
  }
  // Another address: it takes the two places that are left, and then from those that have more.
  Endpoint other;
  other.device = world_->backend().open(world_->device(2)).take();
  std::vector<Connection*> others;
  for (int i = 0; i < 3; ++i) others.push_back(other.device->connect(b_.address, kConnectMs).take());
  ASSERT_TRUE(run_until({&a_, &b_, &other}, [&] { return other.count(Kind::kConnected) == 3; }));
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kClosed) == 7; }));
  EXPECT_THAT(b_.closed(strangers[6].server)->completion.error.message(),
              testing::HasSubstr("limits.strangers = 6"));
  const Pair quick = connect();
  EXPECT_EQ(b_.closed(quick.server), nullptr);
  EXPECT_EQ(b_.closed(friendly.server), nullptr);
  ASSERT_TRUE(friendly.client->send(random_bytes(100, 1), 0).is_ok());
  EXPECT_TRUE(run_until([&] { return b_.count(Kind::kMessage, friendly.server) == 1; }));
}

TEST(TcpOptions, AreRefusedWithWhatIsExpected) {
  const auto told = [](const std::string& key, const std::string& value) {
    const auto parsed = tcp::parse_options({{key, value}});
    EXPECT_EQ(parsed.status().code(), Code::kConfig) << key << " = " << value;
    return parsed.status().message();
  };
  EXPECT_THAT(told("sockets", "0"),
              testing::HasSubstr("sockets = \"0\"; expected \"auto\" or an integer 1..16"));
  EXPECT_THAT(told("sockets", "3x"), testing::HasSubstr("expected"));
  EXPECT_THAT(told("zero_copy_bytes", "64K"), testing::HasSubstr("a size in bytes"));
  EXPECT_THAT(told("bind_device", "eth0"), testing::HasSubstr("true or false"));
  EXPECT_THAT(told("socket", "2"), testing::HasSubstr("no option is called \"socket\""));
}

TEST(TcpOptions, SocketsFollowTheSpeedOfTheNic) {
  const auto sockets = [](const BackendOptions& given, uint64_t gigabits) {
    return tcp::sockets_for(tcp::parse_options(given).value(), gigabits * 1'000'000'000);
  };
  EXPECT_EQ(sockets({}, 0), 1u);
  EXPECT_EQ(sockets({}, 25), 1u);
  EXPECT_EQ(sockets({}, 100), 4u);
  EXPECT_EQ(sockets({}, 800), 8u);
  EXPECT_EQ(sockets({{"sockets", "auto"}}, 40), 2u);
  EXPECT_EQ(sockets({{"sockets", "3"}}, 100), 3u);
}

TEST(TcpBackend, DiscoversLoopbackAndRefusesForeignAddresses) {
  const std::unique_ptr<Backend> backend = make_tcp_backend();
  const auto devices = backend->discover();
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  const auto lo = std::find_if(devices.value().begin(), devices.value().end(),
                               [](const DeviceInfo& info) { return info.name == "lo"; });
  ASSERT_NE(lo, devices.value().end());
  EXPECT_EQ(lo->address, "127.0.0.1");
  EXPECT_TRUE(lo->up);
  EXPECT_GT(lo->mtu, 0u);
  DeviceInfo wrong;
  wrong.address = "192.0.2.1";  // documentation range: nobody's
  EXPECT_EQ(backend->open(wrong).status().code(), Code::kSystem);
  wrong.address = "localhost";
  EXPECT_EQ(backend->open(wrong).status().code(), Code::kInvalidArgument);
}

}  // namespace hdt::transport
