// tcp_secure_test.cc: TCP connections that are protected: the conformance suite over them, and what somebody
// on the way, or without the key, can do to them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/protocol/transports/man_in_the_middle.h"
#include "transports/secure/tls.h"
#include "transports/secured_connection.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/options.h"
#include "transports/tcp/sealed_reader.h"

namespace hdt::transport {

namespace {

using secure::Protection;
using testing::HasSubstr;
using Octets = std::vector<std::byte>;
using End = Completion::Kind;

constexpr char kSharedKey[] = "a key that both ends have";

tcp::Options protected_by(Protection protection, const std::string& name,
                          const std::string& key = kSharedKey) {
  tcp::Options options;
  if (protection != Protection::kNone)
    options.security = secure::make_tls_security(key, protection, name).take();
  return options;
}

std::unique_ptr<World> world_of(Protection protection) {
  return std::make_unique<LoopbackWorld>(tcp::make_backend(protected_by(protection, "one")));
}
std::unique_ptr<World> make_mac() { return world_of(Protection::kMac); }
std::unique_ptr<World> make_encrypt() { return world_of(Protection::kEncrypt); }

bool contains(const Octets& bytes, const Octets& part) {
  return std::search(bytes.begin(), bytes.end(), part.begin(), part.end()) != bytes.end();
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Mac, TransportStrangers, testing::Values(&make_mac));
INSTANTIATE_TEST_SUITE_P(Encrypt, TransportStrangers, testing::Values(&make_encrypt));
INSTANTIATE_TEST_SUITE_P(TcpMac, TransportConformance, testing::Values(&make_mac));
INSTANTIATE_TEST_SUITE_P(TcpEncrypt, TransportConformance, testing::Values(&make_encrypt));

// a_ dials b_ through somebody in the middle.
class TcpProtected : public TransportConformance {
 protected:
  void SetUp() override {
    TransportConformance::SetUp();
    middle_ = std::make_unique<ManInTheMiddle>(b_.address);
    b_.address = middle_->address();
    memory_.resize(256 << 10);
    key_ = b_.enlist(memory_.data(), memory_.size()).take();
  }
  void TearDown() override { middle_.reset(); }

  // A connection on which a message has arrived: the last word of the key exchange is the dialler's, and may
  // still be on its way when both ends are there.
  Pair connect_and_greet() {
    const Pair pair = connect();
    greeted_ = pair.server;
    EXPECT_TRUE(pair.client->send(random_bytes(10, 1), 0).is_ok());
    EXPECT_TRUE(run_until([&] { return b_.count(End::kMessage, greeted_) == 1; }));
    return pair;
  }
  // The number of messages that arrived at `server` after the greeting.
  size_t messages(const Connection* server) const {
    return b_.count(End::kMessage, server) - (server == greeted_ ? 1 : 0);
  }

  // Ends with a wrong tag at the end that accepted, which reports nothing of what came.
  void expect_refused(const Pair& pair) {
    ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
    EXPECT_THAT(b_.closed(pair.server)->completion.error.message(), HasSubstr("its tag is wrong"));
    EXPECT_EQ(messages(pair.server), 0U);
    EXPECT_EQ(b_.count(End::kWritten, pair.server), 0U);
  }

  std::unique_ptr<ManInTheMiddle> middle_;
  Octets memory_;
  RegionKey key_;
  const Connection* greeted_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Mac, TcpProtected, testing::Values(&make_mac));
INSTANTIATE_TEST_SUITE_P(Encrypt, TcpProtected, testing::Values(&make_encrypt));

TEST_P(TcpProtected, BothEndsHaveTheSameBindingAndOthersAnother) {
  const auto binding = [](Connection* connection) {
    const auto* bound = dynamic_cast<const SecuredConnection*>(connection)->binding();
    return bound != nullptr ? *bound : secure::Binding{};
  };
  const Pair one = connect();
  ASSERT_TRUE(one.client->send(random_bytes(10, 1), 0).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(End::kMessage) == 1; }));
  EXPECT_EQ(binding(one.client), binding(one.server));
  EXPECT_NE(binding(one.client), secure::Binding{});
  one.client->close();
  ASSERT_TRUE(run_until([&] { return b_.closed(one.server) != nullptr; }));
  const Pair two = connect();
  EXPECT_NE(binding(one.client), binding(two.client));
}

TEST_P(TcpProtected, OnlyMacCanBeRead) {
  const bool encrypted = testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() ==
                         std::string("Encrypt/TcpProtected");
  const Pair pair = connect_and_greet();
  middle_->change(nullptr);
  const Octets payload = random_bytes(100'000, 2), message = random_bytes(1000, 3);
  ASSERT_TRUE(pair.client->write(payload.data(), payload.size(), key_, 17, immediate_of(5), 1).is_ok());
  ASSERT_TRUE(pair.client->send(message, 2).is_ok());
  ASSERT_TRUE(run_until([&] { return messages(pair.server) == 1 && b_.count(End::kWritten) == 1; }));
  EXPECT_EQ(std::memcmp(memory_.data() + 17, payload.data(), payload.size()), 0);
  const Octets seen = middle_->seen();
  EXPECT_NE(contains(seen, payload), encrypted);
  EXPECT_NE(contains(seen, message), encrypted);
  EXPECT_NE(contains(seen, Octets(key_.bytes.begin(), key_.bytes.begin() + 8)), encrypted)
      << "the region's key";
}

TEST_P(TcpProtected, AChangedByteEndsItAndNothingIsReported) {
  constexpr size_t kPayload = 3000;
  const Octets payload = random_bytes(kPayload, 4);
  const size_t head = tcp::kSealedHeadBytes;
  const size_t all = head + kPayload + secure::kTagBytes;
  std::vector<size_t> places = {
      0, 5, 8, 16, 24, 32, 95, 96, head - 1, head, head + 1, all - secure::kTagBytes, all - 1};
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 10; ++i) places.push_back(random() % all);
  for (const size_t place : places) {
    SCOPED_TRACE("byte " + std::to_string(place));
    const Pair pair = connect_and_greet();
    middle_->change([at = place](Octets& bytes) mutable {
      if (at < bytes.size()) bytes[at] ^= std::byte{0x10};
      at -= bytes.size();
    });
    ASSERT_TRUE(pair.client->write(payload.data(), payload.size(), key_, 0, immediate_of(1), 1).is_ok());
    expect_refused(pair);
    // A write whose head is not the peer's places nothing.
    if (place < head) {
      EXPECT_EQ(memory_[100], std::byte{0});
    }
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    ASSERT_TRUE(run_until([&] { return a_.closed(pair.client) != nullptr; }));
  }
}

TEST_P(TcpProtected, WhatIsRepeatedOrLeftOutEndsIt) {
  const Octets message = random_bytes(500, 5);
  const size_t frame = tcp::kSealedHeadBytes + message.size() + secure::kTagBytes;
  for (const bool repeat : {true, false}) {
    SCOPED_TRACE(repeat ? "repeated" : "left out");
    const Pair pair = connect_and_greet();
    middle_->change([repeat](Octets& bytes) {
      const Octets copy = bytes;
      if (repeat) {
        bytes.insert(bytes.end(), copy.begin(), copy.end());
      } else {
        bytes.clear();
      }
    });
    ASSERT_TRUE(pair.client->send(message, 0).is_ok());
    ASSERT_TRUE(run_until([&] { return middle_->seen().size() == frame; }));
    if (!repeat) {
      middle_->change(nullptr);
      ASSERT_TRUE(pair.client->send(message, 0).is_ok());
    }
    ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
    EXPECT_THAT(b_.closed(pair.server)->completion.error.message(), HasSubstr("its tag is wrong"));
    EXPECT_EQ(messages(pair.server), repeat ? 1U : 0U);
    middle_->change(nullptr);
    ASSERT_TRUE(run_until([&] { return a_.closed(pair.client) != nullptr; }));
  }
}

// An end in order cannot be made by others: neither by closing nor by frames in the clear.
TEST_P(TcpProtected, NobodyElseEndsItInOrder) {
  for (const bool goodbye : {true, false}) {
    SCOPED_TRACE(goodbye ? "a goodbye in the clear" : "cut");
    const Pair pair = connect_and_greet();
    if (goodbye) {
      middle_->change([](Octets& bytes) {
        tcp::FrameHeader header;
        header.type = tcp::FrameType::kGoodbye;
        bytes.assign(256, std::byte{0});
        std::memcpy(bytes.data(), &header, sizeof header);
      });
      ASSERT_TRUE(pair.client->send(random_bytes(10, 1), 0).is_ok());
    } else {
      middle_->cut();
    }
    ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
    EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
    middle_->change(nullptr);
  }
}

TEST_P(TcpProtected, FramesOfAllSizesComeThroughBothWays) {
  const Pair pair = connect();
  std::mt19937_64 random(test_seed());
  Octets there(memory_.size());
  const RegionKey other = a_.enlist(there.data(), there.size()).take();
  std::vector<Octets> sent;
  for (int i = 0; i < 300; ++i) {
    const bool forth = random() % 2 == 0;
    Endpoint& to = forth ? b_ : a_;
    Connection* from = forth ? pair.client : pair.server;
    sent.push_back(random_bytes(random() % (i % 10 == 0 ? memory_.size() : 3000), random()));
    const Octets& payload = sent.back();
    const size_t written = to.count(End::kWritten), heard = to.count(End::kMessage);
    if (i % 3 == 0) {
      const Octets words = random_bytes(1 + random() % kMaxMessageBytes, random());
      ASSERT_TRUE(from->send(words, 0).is_ok());
      ASSERT_TRUE(run_until([&] { return to.count(End::kMessage) > heard; }));
      ASSERT_EQ(to.all(End::kMessage).back()->message, words);
    }
    ASSERT_TRUE(
        from->write(payload.data(), payload.size(), forth ? key_ : other, 0, immediate_of(7), 9).is_ok());
    ASSERT_TRUE(run_until([&] { return to.count(End::kWritten) > written; }));
    const Octets& memory = forth ? memory_ : there;
    ASSERT_TRUE(payload.empty() || std::memcmp(memory.data(), payload.data(), payload.size()) == 0);
  }
}

// Two nodes that do not agree.
class TcpDisagreement : public testing::Test {
 protected:
  // The result of the end that dials.
  Status dial(const tcp::Options& dials, const tcp::Options& accepts) {
    const auto from = tcp::make_backend(dials), to = tcp::make_backend(accepts);
    Endpoint one, two;
    DeviceInfo info;
    info.name = "lo";
    info.address = "127.0.1.4";
    one.device = from->open(info).take();
    info.address = "127.0.1.5";
    two.device = to->open(info).take();
    const auto connection = one.device->connect(two.device->listen(0).value(), kConnectMs);
    EXPECT_TRUE(connection.is_ok());
    const Event* closed = nullptr;
    for (bool asked = false; closed == nullptr;) {
      one.poll();
      two.poll();
      // The one that dials and expects no protection speaks first.
      if (!asked && one.count(End::kConnected) == 1) {
        asked = true;
        EXPECT_EQ(dials.security, nullptr) << "connected, although the two do not agree";
        if (dials.security != nullptr) break;
        EXPECT_TRUE(connection.value()->send(random_bytes(20, 1), 0).is_ok());
      }
      closed = one.closed(connection.value());
    }
    EXPECT_EQ(two.count(End::kMessage), 0U);
    return closed == nullptr ? Status::ok() : closed->completion.error;
  }
};

TEST_F(TcpDisagreement, IsToldWithBothValuesAndNodes) {
  const tcp::Options none, mac = protected_by(Protection::kMac, "alpha"),
                           encrypt = protected_by(Protection::kEncrypt, "beta");
  for (const bool turned : {false, true}) {
    const Status end = turned ? dial(encrypt, mac) : dial(mac, encrypt);
    EXPECT_EQ(end.code(), Code::kConfig);
    EXPECT_THAT(end.message(), HasSubstr("\"mac\" on node alpha"));
    EXPECT_THAT(end.message(), HasSubstr("\"encrypt\" on node beta"));
  }
  const Status plain = dial(none, encrypt);
  EXPECT_EQ(plain.code(), Code::kConfig);
  EXPECT_THAT(plain.message(), HasSubstr("node beta has a cluster key"));
  const Status deaf = dial(mac, none);
  EXPECT_EQ(deaf.code(), Code::kConfig);
  EXPECT_THAT(deaf.message(), HasSubstr("security.cluster_key_file"));
}

TEST_F(TcpDisagreement, OfKeysIsToldWithBothNodes) {
  const Status end = dial(protected_by(Protection::kMac, "alpha", "one key of the two, and long"),
                          protected_by(Protection::kMac, "beta", "the other one of the two"));
  EXPECT_EQ(end.code(), Code::kConfig);
  EXPECT_THAT(end.message(), testing::AllOf(HasSubstr("node alpha"), HasSubstr("node beta"),
                                            HasSubstr("do not have the same cluster key")));
}

// Somebody who speaks the protocol and has no key.
class TcpKeyless : public TransportConformance {
 protected:
  // Says `bytes` behind the test of the path; returns why b_ ended it.
  Status say(const Octets& bytes) {
    const size_t before = b_.count(End::kClosed);
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const size_t colon = b_.address.rfind(':');
    const sockaddr_in there = loopback(b_.address.substr(0, colon).c_str(),
                                       static_cast<uint16_t>(std::stoi(b_.address.substr(colon + 1))));
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
    Octets all;
    for (const uint64_t step : {tcp::kPathHere, tcp::kPathAll}) {
      tcp::FrameHeader first;
      first.type = tcp::FrameType::kPath;
      first.region = step;
      const auto* head = reinterpret_cast<const std::byte*>(&first);
      all.insert(all.end(), head, head + sizeof first);
    }
    all.insert(all.end(), bytes.begin(), bytes.end());
    EXPECT_EQ(::send(fd, all.data(), all.size(), MSG_NOSIGNAL), static_cast<ssize_t>(all.size()));
    ::shutdown(fd, SHUT_WR);
    EXPECT_TRUE(run_until([&] { return b_.count(End::kClosed) > before; }));
    ::close(fd);
    return b_.all(End::kClosed).back()->completion.error;
  }
  static Octets frame(tcp::FrameType type, uint64_t region, uint64_t offset, const Octets& payload) {
    tcp::FrameHeader header;
    header.type = type;
    header.region = region;
    header.offset = offset;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    const auto* head = reinterpret_cast<const std::byte*>(&header);
    Octets whole(head, head + sizeof header);
    if (type == tcp::FrameType::kWrite) whole.resize(whole.size() + kImmediateBytes);
    whole.insert(whole.end(), payload.begin(), payload.end());
    return whole;
  }
};
INSTANTIATE_TEST_SUITE_P(Mac, TcpKeyless, testing::Values(&make_mac));
INSTANTIATE_TEST_SUITE_P(Encrypt, TcpKeyless, testing::Values(&make_encrypt));

TEST_P(TcpKeyless, ReachesNoMemoryAndNoOwner) {
  Octets memory(4096, std::byte{7});
  const RegionKey key = b_.enlist(memory.data(), memory.size()).take();
  uint64_t region = 0;
  std::memcpy(&region, key.bytes.data(), sizeof region);
  EXPECT_FALSE(say(frame(tcp::FrameType::kWrite, region, 0, Octets(100))).is_ok());
  EXPECT_THAT(say(frame(tcp::FrameType::kMessage, 0, 0, Octets(100))).message(),
              HasSubstr("has a cluster key"));
  EXPECT_FALSE(say(frame(tcp::FrameType::kSecure, tcp::kSecureExchange, 0, Octets(100))).is_ok());
  EXPECT_FALSE(say(frame(tcp::FrameType::kSecure, tcp::kSecureOpening, 0, Octets(10))).is_ok());
  EXPECT_FALSE(say(frame(tcp::FrameType::kSecure, tcp::kSecureOpening, 1, Octets(65))).is_ok());
  EXPECT_FALSE(say(frame(tcp::FrameType::kSecure, tcp::kSecureOpening, ~uint64_t{0}, {})).is_ok());
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 40; ++i) {
    Octets noise = frame(tcp::FrameType::kSecure, tcp::kSecureOpening, 1 + i % 2, Octets(3, std::byte{'x'}));
    for (int parts = 0; parts < 3; ++parts) {
      const Octets more = frame(tcp::FrameType::kSecure, tcp::kSecureExchange, 0,
                                random_bytes(random() % tcp::kMaxSecureBytes, random()));
      noise.insert(noise.end(), more.begin(), more.end());
    }
    EXPECT_FALSE(say(noise).is_ok());
  }
  EXPECT_EQ(memory, Octets(4096, std::byte{7}));
  EXPECT_EQ(b_.count(End::kMessage) + b_.count(End::kWritten), 0U);
  const Pair good = connect();
  ASSERT_TRUE(good.client->send(random_bytes(100, 1), 0).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(End::kMessage, good.server) == 1; }));
}

}  // namespace hdt::transport
